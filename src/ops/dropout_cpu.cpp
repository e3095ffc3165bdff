// The loops of dropout on the CPU.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/dropout_mask.h"
#include "base/vector_math.h"
#include "ops/dropout.h"

namespace trainer {
namespace {

template <class T>
TRAINER_VECTORISED void drop_row(const T* __restrict__ in, T* __restrict__ out, int64_t cols, RowMask mask) {
  for (int64_t col = 0; col < cols; col++) {
    out[col] = mask.drop(in[col], col);
  }
}

// Rounds as drop_row() and an addition after it.
template <class T>
TRAINER_VECTORISED void drop_rows_and_add(const T* __restrict__ x, T* __restrict__ out,
                                          const T* __restrict__ g, T* __restrict__ sum, int64_t cols,
                                          RowMask mask) {
  for (int64_t col = 0; col < cols; col++) {
    out[col] = mask.drop(x[col], col);  // the compiler computes the bits of a column once
    sum[col] = sum[col] + mask.drop(g[col], col);
  }
}

int64_t rows_at_once(int64_t cols) { return std::max<int64_t>(1, 32768 / std::max<int64_t>(cols, 1)); }

}  // namespace

at::Tensor dropout_cpu(const at::Tensor& input, const at::Tensor& row_keys, int64_t key, double p) {
  const at::Tensor x = input.contiguous(), keys = row_keys.contiguous();
  at::Tensor out = at::empty_like(x);
  const int64_t cols = x.size(-1), rows = x.numel() / std::max<int64_t>(cols, 1);
  TORCH_CHECK(row_keys.numel() == rows, "dropout: ", rows, " rows, but ", row_keys.numel(), " row keys");
  if (x.is_meta()) return out;
  const int64_t* row_key = keys.const_data_ptr<int64_t>();
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "dropout", [&] {
    const scalar_t* in = x.const_data_ptr<scalar_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, rows, rows_at_once(cols), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; row++) {
        drop_row(in + row * cols, to + row * cols, cols, RowMask(row_key[row], key, p));
      }
    });
  });
  return out;
}

at::Tensor dropout_with_gradient_cpu(const at::Tensor& x_, const at::Tensor& g_, const at::Tensor& sum,
                                     const at::Tensor& row_keys, int64_t key, double p) {
  const at::Tensor x = x_.contiguous(), g = g_.contiguous(), keys = row_keys.contiguous();
  at::Tensor out = at::empty_like(x);
  const int64_t cols = x.size(-1), rows = x.numel() / std::max<int64_t>(cols, 1);
  TORCH_CHECK(row_keys.numel() == rows && g.sizes() == x.sizes() && sum.sizes() == x.sizes() &&
                  sum.is_contiguous() && g.scalar_type() == x.scalar_type() &&
                  sum.scalar_type() == x.scalar_type(),
              "dropout: ", x.sizes(), ", ", g.sizes(), " and ", sum.sizes());
  if (x.is_meta()) return out;
  const int64_t* row_key = keys.const_data_ptr<int64_t>();
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "dropout_with_gradient", [&] {
    const scalar_t *in = x.const_data_ptr<scalar_t>(), *gradient = g.const_data_ptr<scalar_t>();
    scalar_t *to = out.mutable_data_ptr<scalar_t>(), *to_sum = sum.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, rows, rows_at_once(cols), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; row++) {
        const int64_t at = row * cols;
        drop_rows_and_add(in + at, to + at, gradient + at, to_sum + at, cols, RowMask(row_key[row], key, p));
      }
    });
  });
  return out;
}

}  // namespace trainer
