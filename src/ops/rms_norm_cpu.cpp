// The loops of RMSNorm on the CPU.
#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/vector_math.h"
#include "device/op.h"
#include "ops/rms_norm.h"
#include "ops/rms_norm_rows.h"

namespace trainer {
namespace {

using TensorPair = std::tuple<at::Tensor, at::Tensor>;

// Adds g n over these rows to gw; n as it was multiplied by the weight.
template <class T, bool plus_one>
TRAINER_VECTORISED void norm_rows_grad_weight(const T* __restrict__ g, const T* __restrict__ x,
                                              const float* __restrict__ rstd, float* __restrict__ gw,
                                              int64_t rows, int64_t cols) {
  for (int64_t row = 0; row < rows; row++, g += cols, x += cols) {
    const float r = rstd[row];
    for (int64_t c = 0; c < cols; c++) {
      gw[c] += static_cast<float>(g[c]) * normalised<T, plus_one>(static_cast<float>(x[c]), r);
    }
  }
}

int64_t rows_of(const at::Tensor& x) { return x.numel() / std::max<int64_t>(x.size(-1), 1); }

// Rows of a block: the least work for a thread, and the rows of one partial sum of the weight's gradient.
int64_t rows_per_block(int64_t rows) { return std::max<int64_t>(16, (rows + 63) / 64); }
int64_t blocks_of(int64_t rows) { return (rows + rows_per_block(rows) - 1) / rows_per_block(rows); }

// Calls body(block, first row, rows) for each block.
template <class Body>
void for_blocks(int64_t rows, const Body& body) {
  const int64_t step = rows_per_block(rows);
  at::parallel_for(0, blocks_of(rows), 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; block++) {
      body(block, block * step, std::min(step, rows - block * step));
    }
  });
}

}  // namespace

TensorPair rms_norm_cpu(const at::Tensor& input, const at::Tensor& weight, double epsilon, bool plus_one) {
  TORCH_CHECK(weight.scalar_type() == input.scalar_type(), "rms_norm: x and weight of different types");
  const at::Tensor x = input.contiguous(), w = weight.contiguous();
  const int64_t rows = rows_of(x), cols = x.size(-1);
  at::Tensor y = at::empty_like(x), rstd = at::empty({rows}, x.options().dtype(at::kFloat));
  if (x.is_meta()) return {y, rstd};
  with_kind(x, "rms_norm", plus_one, [&]<class T, bool plus>() {
    const T *from = x.const_data_ptr<T>(), *by = w.const_data_ptr<T>();
    T* to = y.mutable_data_ptr<T>();
    float* inverse = rstd.mutable_data_ptr<float>();
    for_blocks(rows, [&](int64_t /*block*/, int64_t row, int64_t count) {
      norm_rows<T, plus>(from + row * cols, by, to + row * cols, inverse + row, count, cols,
                         static_cast<float>(epsilon));
    });
  });
  return {y, rstd};
}

TensorPair rms_norm_backward_cpu(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight,
                                 const at::Tensor& rstd, bool needs_x, bool needs_weight, bool plus_one) {
  const at::Tensor g = grad.contiguous(), x = input.contiguous(), w = weight.contiguous();
  const int64_t rows = rows_of(x), cols = x.size(-1), blocks = blocks_of(rows);
  at::Tensor gx, sums;
  if (needs_x) gx = at::empty_like(x);
  if (needs_weight) sums = at::zeros({blocks, cols}, rstd.options());
  if (!x.is_meta()) {
    with_kind(x, "rms_norm_backward", plus_one, [&]<class T, bool plus>() {
      const T *from = x.const_data_ptr<T>(), *gradient = g.const_data_ptr<T>(), *by = w.const_data_ptr<T>();
      const float* inverse = rstd.const_data_ptr<float>();
      T* to = needs_x ? gx.mutable_data_ptr<T>() : nullptr;
      float* sum = needs_weight ? sums.mutable_data_ptr<float>() : nullptr;
      for_blocks(rows, [&](int64_t block, int64_t row, int64_t count) {
        const int64_t at = row * cols;
        if (needs_weight) {
          norm_rows_grad_weight<T, plus>(gradient + at, from + at, inverse + row, sum + block * cols, count,
                                         cols);
        }
        if (needs_x) {
          norm_rows_grad_x<T, plus>(gradient + at, from + at, by, inverse + row, to + at, count, cols);
        }
      });
    });
  }
  return {gx, needs_weight ? sums.sum(0).to(weight.scalar_type()) : sums};
}

}  // namespace trainer
