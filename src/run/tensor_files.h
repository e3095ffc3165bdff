// Writes tensors of a run to files, and loads them back in place.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include "trainer/formats/safetensors.h"

namespace trainer {

// A tensor on a device is copied to the host when it is written.
TensorSource source_of(const at::Tensor& tensor);
// The same, written in another type: converted piece by piece, so that no second tensor is in memory.
TensorSource source_of(const at::Tensor& tensor, Dtype dtype);

// Returns the largest magnitude in a tensor; 0 for an empty one, NaN if there is one.
double largest_magnitude(const at::Tensor& tensor);

// Copies the tensors of a file into the tensors with the same names, converted if the types differ. Throws
// FormatError that names `where` and each tensor that is missing, unexpected or misshapen; in that case
// nothing is copied.
void fill_tensors(const std::map<std::string, at::Tensor>& places,
                  const std::map<std::string, TensorView>& stored, const std::filesystem::path& where);

}  // namespace trainer
