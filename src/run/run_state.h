// The content of a checkpoint: what a run needs to resume as if it had not been stopped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "trainer/formats/run_position.h"
#include "trainer/formats/safetensors.h"
#include "trainer/optim/optimizer.h"
#include "trainer/run/artefacts.h"

#include "formats/optimizer_state.h"
#include "formats/trainer_state.h"

namespace trainer {

class Trainer;

// The optimizer's tensors of other ranks: their types and shapes.
using TensorsElsewhere = TensorsOfParameters<TensorSource>;

struct RunState {
  SavedWeights weights;
  OptimizerSnapshot optimizer;
  TrainerState trainer_state;
  std::optional<RunPosition> position;  // absent, with no optimizer: weights only, no run can resume

  int64_t bytes() const;  // size of all tensors

  // Returns a copy whose tensors are in main memory. Throws when out of memory.
  RunState copied_to_host() const;

  // Writes the files of docs/reliability.md, except the manifest, into `directory`, which must exist, with
  // room for the tensors that other ranks have: weights on meta, and those of the optimizer. Throws
  // FormatError.
  void write(const Artefacts& artefacts, const std::filesystem::path& directory,
             const TensorsElsewhere& elsewhere = {}) const;
  // Writes the tensors of this rank, which is not rank 0, into the room that rank 0 has left for them.
  void fill(const std::filesystem::path& directory) const;
};

// Return the types and shapes of this rank's tensors as a note for the others, and what a note says.
std::string layout_note(const OptimizerTensors& tensors);
TensorsElsewhere layout_in(const std::string& note);

// Restores the optimizer's state from a checkpoint: that of the parameters that this rank updates. Throws
// FormatError when the checkpoint has another optimizer, or other parameters, shapes or types.
void load_optimizer(Trainer& trainer, const std::filesystem::path& checkpoint);

// A tensor on a device is copied to the host when it is written.
TensorSource source_of(const at::Tensor& tensor);
// The same, written in another type: converted piece by piece, so that no second tensor is in memory.
TensorSource source_of(const at::Tensor& tensor, Dtype dtype);

// Returns the largest magnitude in a tensor; 0 for an empty one, NaN if there is one.
double largest_magnitude(const at::Tensor& tensor);

// Returns a checksum of names and values, without tensors that other ranks have (meta).
std::string values_checksum(const std::map<std::string, at::Tensor>& tensors);

// Copies the tensors of a file into the tensors with the same names, converted if the types differ. Throws
// FormatError that names `where` and each tensor that is missing, unexpected or misshapen; in that case
// nothing is copied.
void fill_tensors(const std::map<std::string, at::Tensor>& places,
                  const std::map<std::string, TensorView>& stored, const std::filesystem::path& where);

}  // namespace trainer
