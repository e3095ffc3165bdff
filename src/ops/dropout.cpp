#include "ops/dropout.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device/op.h"
#include "ops/kernels.h"

namespace trainer {
namespace {

// In as many launches as the kernel's 32-bit numbers need, which is one but for enormous tensors.
at::Tensor dropout_gpu(const at::Tensor& input, const at::Tensor& row_keys, int64_t key, double p) {
  const at::Tensor x = input.contiguous(), keys = row_keys.contiguous();
  const int64_t cols = x.size(-1), rows = x.numel() / std::max<int64_t>(cols, 1);
  TORCH_CHECK(row_keys.numel() == rows, "dropout: ", rows, " rows, but ", row_keys.numel(), " row keys");
  const int64_t width = width_for(cols, {x});
  const Kernels& kernels = kernels_for(x, "dropout", width);
  at::Tensor out = at::empty_like(x);
  const void *from = elements(x, x), *row_key = elements(keys, x, at::kLong);
  void* const to = out.mutable_data_ptr();
  for_rows_that_fit(rows, cols / width, [&](int64_t first, int64_t count) {
    const int64_t pieces = count * (cols / width);
    kernels.start("drop", grid_of(pieces), element_at(from, x, first * cols),
                  element_at(row_key, keys, first), element_at(to, x, first * cols), static_cast<int>(cols),
                  KernelMask(key, p), static_cast<unsigned>(pieces));
  });
  return out;
}

constexpr Op kDropout{"trainer::dropout", dropout_cpu, dropout_gpu};
constexpr Op kDropoutWithGradient{"trainer::dropout_with_gradient", dropout_with_gradient_cpu};

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

at::Tensor dropout_apply(const at::Tensor& x, const at::Tensor& row_keys, uint64_t key, double p) {
  return kDropout(x, row_keys, static_cast<int64_t>(key), p);
}

at::Tensor dropout_with_gradient(const at::Tensor& x, const at::Tensor& g, const at::Tensor& sum,
                                 const at::Tensor& row_keys, uint64_t key, double p) {
  return kDropoutWithGradient(x, g, sum, row_keys, static_cast<int64_t>(key), p);
}

at::Tensor dropout(const at::Tensor& x, const at::Tensor& row_keys, uint64_t key, double p) {
  return p == 0.0 ? x : Dropout::apply(x, row_keys, static_cast<int64_t>(key), p);
}

at::Tensor row_keys(const at::Tensor& dropout_keys, const at::Tensor& positions) {
  return dropout_keys.add(positions);
}

at::Tensor row_keys(const at::Tensor& dropout_keys, int64_t seq) {
  return row_keys(dropout_keys.unsqueeze(1), at::arange(seq, dropout_keys.options()).unsqueeze(0));
}

}  // namespace trainer
