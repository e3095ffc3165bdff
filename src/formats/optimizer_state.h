// optimizer.safetensors: the optimizer's tensors, named after the parameters: "NAME.exp_avg",
// "NAME.exp_avg_sq", "NAME.master".
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "trainer/formats/safetensors.h"

namespace trainer {

inline constexpr const char* kOptimizerFile = "optimizer.safetensors";

// Name of the parameter -> name of the state ("exp_avg") -> tensor.
template <class Tensor>
using TensorsOfParameters = std::map<std::string, std::map<std::string, Tensor>>;

struct OptimizerState {
  std::string name;         // the optimizer's: "adamw"
  int64_t steps_taken = 0;  // updates so far, for the bias correction
  TensorsOfParameters<TensorView> tensors;
  std::shared_ptr<const MappedFile> mapping;  // holds the bytes
};

// Throws FormatError when the file cannot be written or the name of a state has a dot in it.
void write_optimizer_state(const std::filesystem::path& directory, const std::string& name,
                           int64_t steps_taken, const TensorsOfParameters<TensorSource>& tensors);
// Writes tensors into the room that the file has for them: a source without `write` (safetensors.h).
void fill_optimizer_state(const std::filesystem::path& directory,
                          const TensorsOfParameters<TensorSource>& tensors);
// Throws FormatError when the file is missing, damaged, or not written by write_optimizer_state.
OptimizerState read_optimizer_state(const std::filesystem::path& directory);

}  // namespace trainer
