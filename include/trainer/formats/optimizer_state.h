// optimizer.safetensors: the optimizer's tensors by the name of the parameter, "NAME.exp_avg",
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

// Parameter -> what is kept of it ("exp_avg") -> tensor.
template <class Tensor>
using TensorsOfParameters = std::map<std::string, std::map<std::string, Tensor>>;

struct OptimizerState {
  std::string name;         // of the optimizer: "adamw"
  int64_t steps_taken = 0;  // updates, for the correction of bias
  TensorsOfParameters<TensorView> tensors;
  std::shared_ptr<const MappedFile> mapping;  // holds the bytes
};

// Throws FormatError, also where what is kept has a dot in its name.
void write_optimizer_state(const std::filesystem::path& directory, const std::string& name,
                           int64_t steps_taken, const TensorsOfParameters<TensorSource>& tensors);
// Throws FormatError: missing, damaged, or not written by write_optimizer_state.
OptimizerState read_optimizer_state(const std::filesystem::path& directory);

}  // namespace trainer
