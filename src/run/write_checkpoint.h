// Writes a checkpoint with all ranks.
#pragma once

#include <filesystem>

#include "trainer/formats/checkpoint.h"
#include "trainer/parallel/ranks.h"

#include "run/run_state.h"

namespace trainer {

// Rank 0 writes everything but the optimizer's tensors of other ranks, which write them at the same time into
// the same file. So the checkpoint does not depend on the number of ranks. `state`: of this rank;
// `elsewhere`: of the others. Returns the checkpoint, with its files only on rank 0. Throws on every rank
// when one fails; then the checkpoint does not exist. output_dir must be the same folder for all ranks.
Checkpoint write_checkpoint(const RunState& state, const TensorsElsewhere& elsewhere,
                            const Artefacts& artefacts, const std::filesystem::path& output_dir,
                            const Ranks& ranks);

}  // namespace trainer
