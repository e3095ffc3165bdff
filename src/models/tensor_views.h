// Conversions between LibTorch's tensors and the tensor views of the file formats.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "trainer/formats/safetensors.h"

namespace trainer {

at::ScalarType scalar_type(Dtype dtype);
Dtype file_dtype(at::ScalarType type);  // throws FormatError for a type that files cannot hold

// Returns a tensor on the file's own memory. It keeps the mapping alive and, if it is `counted`, counts as
// memory in use (HostCharge).
at::Tensor mapped_tensor(const TensorView& view, std::shared_ptr<const MappedFile> mapping,
                         bool counted = true);

// Returns a view of a contiguous CPU tensor, valid as long as the tensor lives.
TensorView view_of(const at::Tensor& tensor);

}  // namespace trainer
