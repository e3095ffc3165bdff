// The rank of this process in a run with several, from the environment variables of its launcher.
#pragma once

#include <cstdint>
#include <string>

namespace trainer {

struct RankPlace {
  int64_t rank = 0, count = 1;  // among all processes of the run
  int64_t local_rank = 0;       // among those of this machine: which GPU it takes
  int64_t local_count = 1;
  std::string address = "";  // the address of rank 0's machine
  int port = 0;
  bool hosted = false;  // the launcher hosts the store at this address: rank 0 must not
  std::string attempt =
      "0";  // the number of this start of the processes: keys of an earlier one do not count
  std::string launcher = "";  // "torchrun", "srun", "trainer"; "": started alone
};

// The variable that `trainer --gpus` and --ranks set to "trainer" for the processes that they start.
constexpr const char* kLauncherVariable = "TRAINER_LAUNCHER";

// Returns whether it is set: the parent of this process waits for it, and hands signals on.
bool is_started_by_trainer();

// Returns the place of this process. RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and
// MASTER_PORT come first (torchrun, docs.pytorch.org/docs/stable/elastic/run.html; our own launcher). Without
// WORLD_SIZE, in a step of srun, it follows from SLURM_PROCID and others (slurm.schedmd.com/srun.html). The
// shell of an sbatch script and a step of one task are alone. Throws ConfigError, which names the variable,
// if one is missing, is no number, or contradicts another.
RankPlace rank_place();

}  // namespace trainer
