// The norm of a gradient on the CPU.
#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/vector_math.h"
#include "optim/gradient_norm.h"

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

}  // namespace trainer
