// Views that cost no call of LibTorch's dispatcher. A step takes thousands of views, and one narrow() is
// three calls of it. They are for code that autograd does not record: the insides of an operator or of a
// Function.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/reshape.h>
#include <c10/core/TensorImpl.h>

namespace trainer {

// x.as_strided(sizes, strides, offset) without the dispatcher.
inline at::Tensor plain_view(const at::Tensor& x, at::IntArrayRef sizes, at::IntArrayRef strides,
                             int64_t offset) {
  at::Tensor out = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(x.storage()),
                                                            x.key_set(), x.dtype());
  out.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return out;
}

// Of a matrix: rows or columns [first, first + count), and its transposition.
inline at::Tensor plain_rows(const at::Tensor& x, int64_t first, int64_t count) {
  return plain_view(x, {count, x.size(1)}, x.strides(), x.storage_offset() + first * x.stride(0));
}
inline at::Tensor plain_columns(const at::Tensor& x, int64_t first, int64_t count) {
  return plain_view(x, {x.size(0), count}, x.strides(), x.storage_offset() + first * x.stride(1));
}
inline at::Tensor plain_transposed(const at::Tensor& x) {
  return plain_view(x, {x.size(1), x.size(0)}, {x.stride(1), x.stride(0)}, x.storage_offset());
}

// x [..., columns] as [all rows, columns]; copied if its rows are not at multiples of one stride.
inline at::Tensor as_matrix(const at::Tensor& x) {
  if (x.dim() == 2) return x;
  bool regular = x.dim() > 2;
  for (int64_t d = 0; d + 2 < x.dim(); d++)
    regular = regular && (x.size(d) == 1 || x.stride(d) == x.size(d + 1) * x.stride(d + 1));
  if (!regular) return x.reshape({-1, x.size(-1)});
  int64_t rows = 1;
  for (int64_t d = 0; d + 1 < x.dim(); d++) rows *= x.size(d);
  return plain_view(x, {rows, x.size(-1)}, {x.stride(-2), x.stride(-1)}, x.storage_offset());
}

// The inverse: a matrix [all rows, columns] whose rows have these leading sizes. `sizes` is the shape of the
// result but for its last number.
inline at::Tensor as_rows_of(const at::Tensor& x, at::IntArrayRef sizes) {
  if (sizes.size() == 2) return x;
  std::vector<int64_t> shape = sizes.vec(), strides(sizes.size());
  shape.back() = x.size(1);
  strides.back() = x.stride(1);
  int64_t stride = x.stride(0);
  for (size_t d = sizes.size() - 1; d-- > 0; stride *= shape[d]) strides[d] = stride;
  return plain_view(x, shape, strides, x.storage_offset());
}

}  // namespace trainer
