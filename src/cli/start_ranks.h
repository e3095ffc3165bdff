// trainer train --gpus N, --ranks N: starts the processes of a run on this machine.
#pragma once

#include <cstdint>
#include <string>

namespace trainer::cli {

struct RanksToStart {
  int64_t count = 2;
  bool share_cores = true;   // each computes on its share of the cores: the user has set no number of threads
  std::string visible_gpus;  // CUDA_VISIBLE_DEVICES; "": as it is
  double patience = 600;     // seconds that those told to stop get for saving
};

// Starts this program `count` times with the arguments that it has itself, and with the variables of
// rank_place.h, and waits until all have ended. Signals to this process go to all of them. Returns if all
// ended well. Else throws Error with the exit code of the run, or ends by the signal that has ended them.
// Throws Error before any is started if the system gives no process or no port.
void start_ranks(const RanksToStart& ranks);

}  // namespace trainer::cli
