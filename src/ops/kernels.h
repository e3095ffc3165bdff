// Helpers to launch the GPU kernels of the operators (*.cu beside them).
#pragma once

#include <algorithm>
#include <initializer_list>

#include <ATen/core/Tensor.h>

#include "base/dropout_mask.h"
#include "device/kernels.h"

namespace trainer {

// Returns the kernels of NAME.cu for x's type, fp32 or bf16. width: number of elements that a thread moves at
// once; 0 if the file does not ask.
inline const Kernels& kernels_for(const at::Tensor& x, std::string_view name, int64_t width) {
  const KernelFile& file = kernel_file(name);
  const bool fp32 = x.scalar_type() == at::kFloat;
  TORCH_CHECK(fp32 || x.scalar_type() == at::kBFloat16, file.name, ": ", x.scalar_type(),
              " is not supported");
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

// Returns the address of x's element `index` in `data`, where its elements are.
inline const void* element_at(const void* data, const at::Tensor& x, int64_t index) {
  return static_cast<const char*>(data) + index * static_cast<int64_t>(x.element_size());
}
inline void* element_at(void* data, const at::Tensor& x, int64_t index) {
  return static_cast<char*>(data) + index * static_cast<int64_t>(x.element_size());
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

// Returns whether a number fits into the 32 bits that the kernels use.
inline bool fits_int(int64_t n) { return n < (int64_t{1} << 31); }
inline void check_fits(int64_t n, const char* name) {
  TORCH_CHECK(fits_int(n), name, ": one tensor has more rows than a GPU's kernel takes (", n,
              "); use a smaller batch");
}

// Calls body(first row, rows) for parts of `rows` rows, each as many as fits_int() with `of_row` threads a
// row. That is once but for enormous tensors, and not at all for an empty one.
template <class Body>
void for_rows_that_fit(int64_t rows, int64_t of_row, const Body& body) {
  const int64_t most = std::max<int64_t>(1, ((int64_t{1} << 31) - 1) / std::max<int64_t>(of_row, 1));
  for (int64_t first = 0; first < rows; first += most) body(first, std::min(most, rows - first));
}

// The kernels' arguments for dropout: MaskOptions in mask.cuh.
struct KernelMask {
  KernelMask(int64_t key_, double p)
      : key(static_cast<uint64_t>(key_)),
        threshold(mask_threshold(p)),
        scale(static_cast<float>(1.0 / (1.0 - p))) {}
  uint64_t key;
  uint32_t threshold;
  float scale;
};

}  // namespace trainer
