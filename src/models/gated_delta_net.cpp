#include "models/gated_delta_net.h"

#include <ATen/ATen.h>

#include "nn/gated_delta_rule.h"
#include "ops/activation.h"
#include "ops/causal_conv.h"

namespace trainer {
namespace {

// Where the samples of a pass lie among its [batch * seq] rows.
TokenRuns runs_of(const DecoderPass& pass, int64_t batch, int64_t seq) {
  TokenRuns runs;
  int64_t next = 0;
  if (pass.packed) {
    for (const int64_t tokens : pass.packed->lengths) {
      runs.push_back({next, tokens});
      next += tokens;
    }
    return runs;
  }
  for (int64_t row = 0; row < batch; row++)
    runs.push_back({row * seq, pass.positions != nullptr ? seq : pass.lengths[static_cast<size_t>(row)]});
  return runs;
}

// The last `count` rows of each run, or zeros before it: [runs, count, columns].
at::Tensor ends_of(const at::Tensor& x, const TokenRuns& runs, int64_t count) {
  const at::Tensor out = at::zeros({std::ssize(runs), count, x.size(1)}, x.options());
  for (size_t i = 0; i < runs.size(); i++) {
    const int64_t there = std::min(count, runs[i].tokens);
    out[static_cast<int64_t>(i)]
        .narrow(0, count - there, there)
        .copy_(x.narrow(0, runs[i].first + runs[i].tokens - there, there));
  }
  return out;
}

}  // namespace

GatedDeltaNet::GatedDeltaNet(const DecoderConfig& c)
    : shape_(c.delta),
      width_(c.delta_conv_width),
      in_proj_qkv_(c.hidden_size, shape_.columns(), false),
      in_proj_z_(c.hidden_size, shape_.values(), false),
      in_proj_b_(c.hidden_size, shape_.value_heads, false),
      in_proj_a_(c.hidden_size, shape_.value_heads, false),
      out_proj_(shape_.values(), c.hidden_size, false),
      conv1d_(shape_.columns(), width_),
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
  in.decay = -(rate * at::softplus(rows_of(projected[3]).to(at::kFloat) + bias));
  in.beta = rows_of(projected[2]).sigmoid().to(at::kFloat);
  const at::Tensor mixed = recur(in, x.x.size(0), pass, cache);
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

// A new token of each row is convolved as the last of a run of `width_` tokens.
at::Tensor GatedDeltaNet::go_on(DeltaInputs in, const TokenRuns& runs, const DecoderPass& pass,
                                KvCache& cache) const {
  const at::Tensor weight = conv1d_.weight.as(in.qkv.scalar_type());
  if (pass.positions == nullptr) {
    cache.tail = ends_of(in.qkv, runs, width_ - 1);
    in.qkv = causal_conv(in.qkv, weight, runs, /*silu=*/true);
  } else {
    const at::Tensor window = at::cat({cache.tail, in.qkv.unsqueeze(1)}, 1);  // [B, width, columns]
    TokenRuns windows;
    for (int64_t row = 0; row < window.size(0); row++) windows.push_back({row * width_, width_});
    in.qkv = causal_conv(window.flatten(0, 1), weight, windows, /*silu=*/true)
                 .view(window.sizes())
                 .select(1, width_ - 1);
    in.first_states = cache.states;
    cache.tail = window.narrow(1, 1, width_ - 1);
  }
  const DeltaResult result = gated_delta(in, shape_, runs, /*wants_last_states=*/true);
  cache.states = result.last_states;
  return result.out;
}

}  // namespace trainer
