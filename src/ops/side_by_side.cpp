#include "ops/side_by_side.h"

#include <ATen/ATen.h>

namespace trainer {
namespace {

at::Tensor together(const std::vector<at::Tensor>& matrices, int64_t dim) {
  const at::Tensor& first = matrices.front();
  if (!first.defined()) return {};
  std::vector<int64_t> shape = first.sizes().vec();
  shape[static_cast<size_t>(dim)] = 0;
  int64_t next = first.storage_offset();
  for (const at::Tensor& x : matrices) {
    const bool fits = x.defined() &&
                      x.storage().unsafeGetStorageImpl() == first.storage().unsafeGetStorageImpl() &&
                      x.scalar_type() == first.scalar_type() && x.strides() == first.strides() &&
                      x.size(1 - dim) == first.size(1 - dim) && x.storage_offset() == next;
    if (!fits) return {};
    next += x.size(dim) * x.stride(dim);
    shape[static_cast<size_t>(dim)] += x.size(dim);
  }
  // Rows follow each other without overlap.
  if (first.stride(1) != 1 || shape[1] > first.stride(0)) return {};
  return first.as_strided(shape, first.strides(), first.storage_offset());
}

}  // namespace

at::Tensor rows_together(const std::vector<at::Tensor>& matrices) { return together(matrices, 0); }
at::Tensor columns_together(const std::vector<at::Tensor>& matrices) { return together(matrices, 1); }

}  // namespace trainer
