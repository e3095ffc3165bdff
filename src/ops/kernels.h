// The GPU kernels of the operators in src/nn (their files are in src/nn/kernels), and helpers to launch them.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>

#include <ATen/core/Tensor.h>

#include "trainer/base/strings.h"

#include "device/kernels.h"

namespace trainer {

namespace kernel_files {
extern const KernelFile adapters, rms_norm, add_norm, gated_activation, rotate_qk, dropout, attention_weights,
    attention_heads, cross_entropy, nf4;
}

// Returns a file's kernels for x's type; nullptr: use LibTorch's operators. width: number of elements that a
// thread moves at once.
inline const Kernels* kernels_for(const at::Tensor& x, const KernelFile& file, int64_t width) {
  const bool fp32 = x.scalar_type() == at::kFloat;
  if (!fp32 && x.scalar_type() != at::kBFloat16) return nullptr;
  return find_kernels(x.device(), file, KernelForm{.bf16 = !fp32, .width = width});
}

// Returns the elements of an input, which must have `type` and be on x's device; nullptr if it is undefined.
inline const void* elements(const at::Tensor& input, const at::Tensor& x, at::ScalarType type) {
  if (!input.defined()) return nullptr;
  TORCH_CHECK(input.scalar_type() == type && input.device() == x.device(), "kernels: ", input.scalar_type(),
              " on ", input.device(), " where ", type, " on ", x.device(), " is needed");
  return input.const_data_ptr();
}
inline const void* elements(const at::Tensor& input, const at::Tensor& x) {
  return elements(input, x, x.scalar_type());
}

// Returns the number of elements in 16 bytes if `cols` and all strides are multiples of it and the tensors,
// all of one type, begin at a multiple of 16 bytes; otherwise 1.
inline int64_t width_for(int64_t cols, std::initializer_list<at::Tensor> tensors,
                         std::initializer_list<int64_t> strides = {}) {
  const int64_t width = 16 / static_cast<int64_t>(tensors.begin()->element_size());
  const auto whole = [&](int64_t n) { return n % width == 0; };
  const bool aligned = std::all_of(tensors.begin(), tensors.end(), [](const at::Tensor& t) {
    return reinterpret_cast<uintptr_t>(t.const_data_ptr()) % 16 == 0;
  });
  return aligned && whole(cols) && std::all_of(strides.begin(), strides.end(), whole) ? width : 1;
}

// One thread per element (or per `width` elements).
inline KernelGrid grid_of(int64_t count) {
  constexpr int64_t threads = 256;
  return {(count + threads - 1) / threads, 1, threads};
}

// One block per row of `cols` elements, with no more warps than have work to do.
inline KernelGrid grid_of_rows(int64_t rows, int64_t cols, int64_t width) {
  const int64_t warps = (cols / width + 31) / 32;
  return {rows, 1, 32 * std::clamp<int64_t>(warps, 1, 8)};
}

// Whether a number fits into the 32 bits that the kernels use.
inline bool fits_int(int64_t n) { return n < (int64_t{1} << 31); }

}  // namespace trainer
