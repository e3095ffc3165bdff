// Gated DeltaNet (Yang, Kautz, Hatamizadeh 2024), the recurrent layer of Qwen3-Next and Qwen3.5. Shapes: B
// batch, S sequence, D hidden_size.
#pragma once

#include <string>
#include <vector>

#include "trainer/nn/linear.h"

#include "models/convolved_runs.h"
#include "models/decoder.h"
#include "nn/norm.h"
#include "ops/gated_delta.h"

namespace trainer {

class GatedDeltaNet : public Mixer {
 public:
  explicit GatedDeltaNet(const DecoderConfig& c);
  at::Tensor forward(const LayerInput& x, const DecoderPass& pass, KvCache* cache) const override;
  const char* name_in_layer() const override { return "linear_attn"; }
  std::vector<std::string> default_lora_targets() const override { return {"in_proj_qkv"}; }

 private:
  // The recurrent part: in.qkv is before the convolution. Returns [B * S, values].
  at::Tensor recur(const DeltaInputs& in, int64_t batch, const DecoderPass& pass, KvCache* cache) const;
  // The same while generating, where the cache has what came before.
  at::Tensor go_on(DeltaInputs in, const TokenRuns& runs, const DecoderPass& pass, KvCache& cache) const;

  DeltaShape shape_;
  Linear in_proj_qkv_, in_proj_z_, in_proj_b_, in_proj_a_, out_proj_;
  CausalConvolution conv1d_;
  Parameter a_log_, dt_bias_;  // [value_heads]
  RmsNorm norm_;               // over value_dim
};

}  // namespace trainer
