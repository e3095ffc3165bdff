#include "ops/dropout.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "base/dropout_mask.h"
#include "base/vector_math.h"
#include "device/operators.h"

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

at::Tensor dropout_host(const at::Tensor& input, const at::Tensor& row_keys, int64_t key, double p) {
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

at::Tensor dropout_with_gradient_host(const at::Tensor& x_, const at::Tensor& g_, const at::Tensor& sum,
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

// Keeps the key besides the tensors, so that backward computes the same mask.
struct Dropout : torch::autograd::Function<Dropout> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x,
                            const at::Tensor& row_keys, int64_t key, double p) {
    ctx->save_for_backward({row_keys});
    ctx->saved_data["key"] = key;
    ctx->saved_data["p"] = p;
    return dropout_apply(x, row_keys, static_cast<uint64_t>(key), p);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const uint64_t key = static_cast<uint64_t>(ctx->saved_data["key"].toInt());
    return {dropout_apply(grads[0], saved[0], key, ctx->saved_data["p"].toDouble()), {}, {}, {}};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(trainer, library) {
  library.def("dropout(Tensor x, Tensor row_keys, int key, float p) -> Tensor");
  library.def(
      "dropout_with_gradient(Tensor x, Tensor g, Tensor(a!) sum, Tensor row_keys, int key, float p) -> "
      "Tensor");
}
TORCH_LIBRARY_IMPL(trainer, CPU, library) {
  library.impl("dropout", dropout_host);
  library.impl("dropout_with_gradient", dropout_with_gradient_host);
}
TORCH_LIBRARY_IMPL(trainer, CUDA, library) { library.impl("dropout", dropout_gpu); }
TORCH_LIBRARY_IMPL(trainer, Meta, library) {
  library.impl("dropout", ByTarget<dropout_host, dropout_gpu>::call);
  library.impl("dropout_with_gradient", dropout_with_gradient_host);
}

at::Tensor dropout_apply(const at::Tensor& x, const at::Tensor& row_keys, uint64_t key, double p) {
  static const Operator<at::Tensor(const at::Tensor&, const at::Tensor&, int64_t, double)> op(
      "trainer::dropout");
  return op(x, row_keys, static_cast<int64_t>(key), p);
}

at::Tensor dropout_with_gradient(const at::Tensor& x, const at::Tensor& g, const at::Tensor& sum,
                                 const at::Tensor& row_keys, uint64_t key, double p) {
  static const Operator<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                   int64_t, double)>
      op("trainer::dropout_with_gradient");
  return op(x, g, sum, row_keys, static_cast<int64_t>(key), p);
}

at::Tensor dropout(const at::Tensor& x, const at::Tensor& row_keys, uint64_t key, double p) {
  return p == 0.0 ? x : Dropout::apply(x, row_keys, static_cast<int64_t>(key), p);
}

at::Tensor row_keys(const at::Tensor& slots, const at::Tensor& positions) {
  return slots.mul(int64_t{1} << 40).add(positions);
}

at::Tensor row_keys(const at::Tensor& slots, int64_t seq) {
  return row_keys(slots.unsqueeze(1), at::arange(seq, slots.options()).unsqueeze(0));
}

}  // namespace trainer
