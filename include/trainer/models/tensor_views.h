// Between LibTorch's tensors and the views of the file formats.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "trainer/formats/safetensors.h"

namespace trainer {

at::ScalarType scalar_type(Dtype dtype);
Dtype file_dtype(at::ScalarType type);  // FormatError for one that files do not hold

// A tensor on the file's own memory; holds the mapping, and is counted in the memory in use (HostCharge).
at::Tensor mapped_tensor(const TensorView& view, std::shared_ptr<const MappedFile> mapping);

// A view of a contiguous CPU tensor; valid as long as it.
TensorView view_of(const at::Tensor& tensor);

}  // namespace trainer
