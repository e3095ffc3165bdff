// Tensors of a run to files, and back into their places.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include "trainer/formats/safetensors.h"

namespace trainer {

// A tensor on a device comes to the host when it is written.
TensorSource source_of(const at::Tensor& tensor);

// Copies what a file holds into the tensors of the same names, converted where the types differ. Throws
// FormatError that names `where` and each tensor that is missing, unexpected or misshapen; then nothing was
// copied.
void fill_tensors(const std::map<std::string, at::Tensor>& places,
                  const std::map<std::string, TensorView>& stored, const std::filesystem::path& where);

}  // namespace trainer
