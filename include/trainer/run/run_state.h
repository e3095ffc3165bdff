// All that a checkpoint holds: what a run needs to go on as if it had not been stopped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "trainer/formats/run_position.h"
#include "trainer/formats/trainer_state.h"
#include "trainer/optim/adamw.h"
#include "trainer/run/artefacts.h"

namespace trainer {

struct RunState {
  SavedWeights weights;
  std::map<std::string, std::map<std::string, at::Tensor>> optimizer;  // AdamW::tensors()
  int64_t updates = 0;                                                 // AdamW::steps_taken()
  TrainerState trainer_state;
  std::optional<RunPosition> position;  // absent, and no optimizer: weights that no run goes on from

  int64_t bytes() const;  // of all tensors

  // With tensors of its own in main memory. Throws for lack of memory.
  RunState copied_to_host() const;

  // Fills `directory`, which is there, with the files of docs/checkpoints.md but for the manifest. Throws
  // FormatError.
  void write(const Artefacts& artefacts, const std::filesystem::path& directory) const;
};

// Puts an optimizer where another was when its checkpoint was written. Throws FormatError: another optimizer,
// other parameters, other shapes.
void load_optimizer(AdamW& optimizer, const std::filesystem::path& checkpoint);

}  // namespace trainer
