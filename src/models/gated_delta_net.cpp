#include "models/gated_delta_net.h"

#include <ATen/ATen.h>

#include "device/target_device.h"
#include "models/convolved_runs.h"
#include "nn/gated_delta_rule.h"
#include "ops/activation.h"
#include "ops/gated_norm.h"

namespace trainer {
namespace {

// On the CPU, LibTorch computes the last numbers of a tensor, which fill no vector, by other functions than
// the rest, and they round otherwise. In fp64 nearly nothing of that is left when the result is rounded, so a
// token's numbers do not depend on how many stand beside it.
template <class Function>
at::Tensor alike_for_all(const at::Tensor& x, Function function) {
  if (runs_on_gpu(x.device())) return function(x);
  return function(x.to(at::kDouble)).to(x.scalar_type());
}

}  // namespace

GatedDeltaNet::GatedDeltaNet(const DecoderConfig& c)
    : shape_(c.delta),
      in_proj_qkv_(c.hidden_size, shape_.columns(), false),
      in_proj_z_(c.hidden_size, shape_.values(), false),
      in_proj_b_(c.hidden_size, shape_.value_heads, false),
      in_proj_a_(c.hidden_size, shape_.value_heads, false),
      out_proj_(shape_.values(), c.hidden_size, false),
      conv1d_(shape_.columns(), c.conv_width),
      a_log_({shape_.value_heads}),
      dt_bias_({shape_.value_heads}),
      norm_(shape_.value_dim, c.norm.epsilon) {
  add("dt_bias", dt_bias_);
  add("A_log", a_log_);
  add("conv1d", conv1d_);
  add("norm", norm_);
  add("out_proj", out_proj_);
  add("in_proj_qkv", in_proj_qkv_);
  add("in_proj_z", in_proj_z_);
  add("in_proj_b", in_proj_b_);
  add("in_proj_a", in_proj_a_);
}

at::Tensor GatedDeltaNet::forward(const LayerInput& x, const DecoderPass& pass, KvCache* cache) const {
  const std::vector<at::Tensor> projected = Linear::forward_together(
      {&in_proj_qkv_, &in_proj_z_, &in_proj_b_, &in_proj_a_}, x, pass.rows, *pass.context);
  const auto rows_of = [](const at::Tensor& y) { return y.flatten(0, 1); };
  const at::Tensor rate = a_log_.as(at::kFloat).exp(), bias = dt_bias_.as(at::kFloat);
  DeltaInputs in;
  in.qkv = rows_of(projected[0]);
  in.decay = -(rate * alike_for_all(rows_of(projected[3]).to(at::kFloat) + bias,
                                    [](const at::Tensor& x) { return at::softplus(x); }));
  in.beta =
      alike_for_all(rows_of(projected[2]), [](const at::Tensor& x) { return x.sigmoid(); }).to(at::kFloat);
  const at::Tensor mixed = recur(in, x.x.size(0), pass, cache);
  if (runs_on_gpu(x.x.device())) {
    const at::Tensor gated = gated_norm(mixed.view_as(projected[1]), projected[1],
                                        norm_.weight.as(mixed.scalar_type()), norm_.facts().epsilon);
    return out_proj_.forward(gated, pass.rows, *pass.context);
  }
  const std::vector<int64_t> heads{x.x.size(0), x.x.size(1), shape_.value_heads, shape_.value_dim};
  const at::Tensor normed = norm_.forward(mixed.view(heads));
  const at::Tensor gated = gated_activation(Activation::silu, projected[1].view(heads), normed);
  return out_proj_.forward(gated.flatten(2), pass.rows, *pass.context);
}

at::Tensor GatedDeltaNet::recur(const DeltaInputs& in, int64_t batch, const DecoderPass& pass,
                                KvCache* cache) const {
  const TokenRuns runs = runs_of(pass, batch, in.qkv.size(0) / batch);
  if (cache != nullptr) return go_on(in, runs, pass, *cache);
  return gated_delta_rule(in, conv1d_.weight.as(in.qkv.scalar_type()), shape_, runs);
}

at::Tensor GatedDeltaNet::go_on(DeltaInputs in, const TokenRuns& runs, const DecoderPass& pass,
                                KvCache& cache) const {
  in.qkv = convolve_on(in.qkv, conv1d_.weight.as(in.qkv.scalar_type()), /*silu=*/true, runs, pass, cache);
  if (pass.has_one_token()) in.first_states = cache.states;
  const DeltaResult result = gated_delta(in, shape_, runs, /*wants_last_states=*/true);
  if (pass.has_one_token()) {
    cache.states = result.last_states;
  } else {
    KvCache::add_rows(cache.states, result.last_states);
  }
  return result.out;
}

}  // namespace trainer
