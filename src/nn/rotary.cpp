#include "trainer/nn/rotary.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nn/rope_frequencies.h"
#include "nn/rotate.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Rotate : torch::autograd::Function<Rotate> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin) {
    ctx->save_for_backward({cos, sin});
    return rotate(x, cos, sin, /*back=*/false);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    return {rotate(grads[0], saved[0], saved[1], /*back=*/true), {}, {}};
  }
};

}  // namespace

Rotary::Rotary(const RopeParameters& parameters)
    : parameters_(parameters), inverse_frequencies_(rope_frequencies(parameters)) {}

// Returns [head_dim / 2]; if sequences have frequencies of their own, [batch, 1, head_dim / 2], or in one row
// [1, seq, head_dim / 2].
at::Tensor Rotary::inverse_frequencies(const std::vector<int64_t>& lengths, bool in_one_row) const {
  const auto stretched = [&](int64_t length) {
    return parameters_.type == RopeType::dynamic && length > parameters_.max_position_embeddings;
  };
  if (std::ranges::none_of(lengths, stretched)) return inverse_frequencies_;
  std::vector<at::Tensor> rows;
  for (const int64_t length : lengths) {
    rows.push_back(stretched(length) ? stretched_frequencies(parameters_, length) : inverse_frequencies_);
    if (in_one_row) rows.back() = rows.back().expand({length, -1});
  }
  return in_one_row ? at::cat(rows).unsqueeze(0) : at::stack(rows).unsqueeze(1);
}

// The host would wait for every copy to a GPU, so the one that all batches use is kept.
at::Tensor Rotary::on_device(const at::Tensor& frequencies, at::Device device) const {
  if (!device.is_cuda() || !frequencies.is_same(inverse_frequencies_)) return frequencies.to(device);
  if (!on_gpu_.defined() || on_gpu_.device() != device) on_gpu_ = frequencies.to(device);
  return on_gpu_;
}

Rotary::Tables Rotary::tables(const at::Tensor& positions, const std::vector<int64_t>& lengths,
                              const at::TensorOptions& options) const {
  const bool in_one_row = positions.dim() == 2 && positions.size(0) == 1 && lengths.size() > 1;
  const at::Tensor inverse = on_device(inverse_frequencies(lengths, in_one_row), options.device());
  at::Tensor angles = positions.to(at::kFloat).unsqueeze(-1) * inverse;  // [(batch,) seq, head_dim / 2]
  if (angles.dim() == 3) angles = angles.unsqueeze(1);                   // the same for all heads
  at::Tensor cos = angles.cos(), sin = angles.sin();
  if (parameters_.attention_factor != 1.0) {
    cos.mul_(parameters_.attention_factor);
    sin.mul_(parameters_.attention_factor);
  }
  const at::ScalarType type = c10::typeMetaToScalarType(options.dtype());
  return {cos.to(type), sin.to(type)};
}

at::Tensor Rotary::apply(const at::Tensor& x, const Tables& tables) {
  return Rotate::apply(x, tables.cos, tables.sin);
}

}  // namespace trainer
