#include "optim/gradient_norm.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/vectorised.h"
#include "device/kernels.h"
#include "optim/kernel_groups.h"

namespace trainer {
namespace {

constexpr int64_t kElementsOfPiece = 32768;

template <class T>
TRAINER_VECTORISED double sum_of_squares(const T* __restrict__ x, int64_t count) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; i++) {
    const double value = static_cast<float>(x[i]);
    sum += value * value;
  }
  return sum;
}

template <class T>
void norms_into(const at::Tensor& norms, const at::Tensor& x) {
  const int64_t count = x.numel();
  const T* from = x.const_data_ptr<T>();
  float* to = norms.mutable_data_ptr<float>();
  at::parallel_for(0, norms.numel(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const int64_t first = i * kElementsOfPiece;
      const double sum = sum_of_squares(from + first, std::min(kElementsOfPiece, count - first));
      to[i] = static_cast<float>(std::sqrt(sum));
    }
  });
}

}  // namespace

at::Tensor norms_of_pieces(const at::Tensor& gradient) {
  const at::Tensor x = gradient.contiguous();
  const int64_t pieces = (x.numel() + kElementsOfPiece - 1) / kElementsOfPiece;
  at::Tensor norms = at::empty({pieces}, x.options().dtype(at::kFloat));
  if (x.is_meta()) return norms;
  x.scalar_type() == at::kBFloat16 ? norms_into<at::BFloat16>(norms, x) : norms_into<float>(norms, x);
  return norms;
}

namespace {

// A row of the kernel's table.
struct NormRow {
  const void* values;
  int64_t count;
  int32_t first_block, is_bf16;
};

bool has_norm_kernel(const at::Tensor& gradient) {
  return gradient.scalar_type() == at::kFloat || gradient.scalar_type() == at::kBFloat16;
}

}  // namespace

at::Tensor gradient_norm_composite(const std::vector<at::Tensor>& gradients) {
  std::vector<at::Tensor> norms;
  for (const at::Tensor& gradient : gradients)
    norms.push_back(at::linalg_vector_norm(gradient, 2, std::nullopt, false, at::kFloat));
  return at::linalg_vector_norm(at::stack(norms));
}

at::Tensor gradient_norm_gpu(const std::vector<at::Tensor>& gradients) {
  const at::Device device = gradients.front().device();
  const Kernels* kernels = std::ranges::all_of(gradients, has_norm_kernel)
                               ? &find_kernels(device, kernel_file("gradient_norm"), "")
                               : nullptr;
  if (kernels == nullptr) return gradient_norm_composite(gradients);
  std::vector<at::Tensor> contiguous;  // they live until the launch
  std::vector<NormRow> rows;
  int64_t blocks = 0;
  for (const at::Tensor& gradient : gradients) {
    const at::Tensor& one = contiguous.emplace_back(gradient.contiguous());
    rows.push_back({one.const_data_ptr(), one.numel(), static_cast<int32_t>(blocks),
                    one.scalar_type() == at::kBFloat16 ? 1 : 0});
    blocks += blocks_for(one.numel());
  }
  const at::Tensor table = kernel_table(rows, device);
  const at::TensorOptions options(device);
  at::Tensor sums = at::empty({blocks}, options.dtype(at::kDouble));
  at::Tensor norm = at::empty({}, options.dtype(at::kFloat));
  kernels->start("sum_squares", grid_of_blocks(blocks), table.const_data_ptr(), static_cast<int>(rows.size()),
                 kBlockElements, sums.mutable_data_ptr());
  kernels->start("finish_norm", {1, 1, 512}, sums.const_data_ptr(), blocks, norm.mutable_data_ptr());
  return norm;
}

}  // namespace trainer
