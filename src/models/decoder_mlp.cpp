#include "base/random.h"
#include "models/decoder.h"
#include "nn/made_inputs.h"

namespace trainer {

DecoderMlp::DecoderMlp(const DecoderConfig& c, int64_t width)
    : name_(c.mlp),
      gate_up_(*this, c.hidden_size, {{c.gate_proj, width}, {c.up_proj, width}}, c.fused_gate_up, c.mlp_bias),
      down_proj_(width, c.hidden_size, c.mlp_bias),
      activation_(c.activation) {
  add(c.down_proj, down_proj_);
}

at::Tensor DecoderMlp::forward(const LayerInput& x, const DecoderPass& pass) const {
  return forward(x, pass.rows, *pass.context, 0.0);
}

at::Tensor DecoderMlp::forward(const LayerInput& x, const at::Tensor& rows, const ForwardContext& context,
                               double dropout) const {
  const std::vector<at::Tensor> gate_up = gate_up_.forward(x, rows, context);
  const LayerInput h = gated_input(activation_, gate_up[0], gate_up[1], context);
  const uint64_t key = derive(name_key(), "inner");
  return down_proj_.forward(dropped_input(h, rows, key, dropout), rows, context);
}

std::unique_ptr<FeedForward> make_mlp(const DecoderConfig& c, size_t layer) {
  return std::make_unique<DecoderMlp>(c, c.intermediate_of(layer));
}

}  // namespace trainer
