// All that a checkpoint holds: what a run needs to go on as if it had not been stopped.
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
  std::optional<RunPosition> position;  // absent, and no optimizer: weights that no run goes on from

  int64_t bytes() const;  // of all tensors

  // With tensors of its own in main memory. Throws for lack of memory.
  RunState copied_to_host() const;

  // Fills `directory`, which is there, with the files of docs/checkpoints.md but for the manifest. Throws
  // FormatError.
  void write(const Artefacts& artefacts, const std::filesystem::path& directory) const;
};

// Restores the optimizer's state from a checkpoint. Throws FormatError: another optimizer, other parameters,
// other shapes, other types.
void load_optimizer(Trainer& trainer, const std::filesystem::path& checkpoint);

}  // namespace trainer
