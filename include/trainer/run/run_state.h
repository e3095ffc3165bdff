// The content of a checkpoint: what a run needs to resume as if it had not been stopped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "trainer/formats/run_position.h"
#include "trainer/formats/trainer_state.h"
#include "trainer/optim/optimizer.h"
#include "trainer/run/artefacts.h"

namespace trainer {

class Trainer;

struct RunState {
  SavedWeights weights;
  OptimizerSnapshot optimizer;
  TrainerState trainer_state;
  std::optional<RunPosition> position;  // absent, with no optimizer: weights only, no run can resume

  int64_t bytes() const;  // size of all tensors

  // Returns a copy whose tensors are in main memory. Throws when out of memory.
  RunState copied_to_host() const;

  // Writes the files of docs/checkpoints.md, except the manifest, into `directory`, which must exist. Throws
  // FormatError.
  void write(const Artefacts& artefacts, const std::filesystem::path& directory) const;
};

// Restores the optimizer's state from a checkpoint. Throws FormatError when the checkpoint has another
// optimizer, or other parameters, shapes or types.
void load_optimizer(Trainer& trainer, const std::filesystem::path& checkpoint);

}  // namespace trainer
