// Tensors that are columns of one matrix, without a copy.
#pragma once

#include <algorithm>
#include <iterator>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trainer {

// Returns whether the last dimensions of these tensors lie next to each other, in this order, in each row of
// one matrix. All else about them is alike.
inline bool side_by_side(const std::vector<at::Tensor>& parts) {
  const at::Tensor& first = parts.front();
  if (!first.defined() || first.dim() < 2 || first.stride(-1) != 1) return false;
  for (int64_t d = 0; d + 2 < first.dim(); d++)
    if (first.stride(d) != first.size(d + 1) * first.stride(d + 1)) return false;
  int64_t next = first.storage_offset(), columns = 0;
  for (const at::Tensor& x : parts) {
    const bool fits =
        x.defined() && x.is_alias_of(first) && x.scalar_type() == first.scalar_type() &&
        x.strides() == first.strides() && x.storage_offset() == next &&
        x.sizes().slice(0, x.sizes().size() - 1) == first.sizes().slice(0, first.sizes().size() - 1);
    if (!fits) return false;
    next += x.size(-1);
    columns += x.size(-1);
  }
  return columns <= first.stride(-2);
}

}  // namespace trainer
