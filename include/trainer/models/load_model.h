// A model directory -> a model whose weights are where they belong: each tensor read once, into the wanted
// type, directly to its final memory. Frozen weights on the CPU stay mapped.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/models/model.h"

namespace trainer {

struct LoadOptions {
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;  // Undefined: each weight as it is stored; computed in fp32
  // Parameters that will be trained: never mapped, requires_grad set.
  bool train_all = false;
};

struct LoadReport {
  int64_t bytes = 0, mapped_bytes = 0, converted_bytes = 0;
  double seconds = 0;
  std::vector<std::string> ignored;  // stored tensors that are known to be superfluous
  std::string line() const;          // for the log
};

// Throws FormatError: no such directory, unknown model_type, and one error naming all missing, unexpected and
// misshapen tensors with expected and found shape.
std::unique_ptr<Model> load_model(const std::filesystem::path& directory, const LoadOptions& options,
                                  LoadReport* report = nullptr);

// The same model on `meta`: shapes without values, for a memory plan. `path`: a model directory, of which
// only config.json is needed, or a file like it (configs/models). Without weights the head is separate where
// config.json does not say that it is tied.
std::unique_ptr<Model> model_on_meta(const std::filesystem::path& path, at::ScalarType dtype, bool train_all);

// "auto" for this device: bf16 where the processor or GPU computes in it, else fp32.
at::ScalarType automatic_dtype(at::Device device);

}  // namespace trainer
