// The gated short convolution of LFM2 (Liquid AI 2025), which most of its layers have instead of attention.
// Shapes: B batch, S sequence, D hidden_size.
#pragma once

#include <string>
#include <vector>

#include "trainer/nn/linear.h"

#include "models/convolved_runs.h"
#include "models/decoder.h"

namespace trainer {

// Of each token in_proj makes b, c and x [D]; the result is out_proj(c * conv(b * x)).
class ShortConvolution : public Mixer {
 public:
  explicit ShortConvolution(const DecoderConfig& c);
  at::Tensor forward(const LayerInput& x, const DecoderPass& pass, KvCache* cache) const override;
  const char* name_in_layer() const override { return "conv"; }
  std::vector<std::string> default_lora_targets() const override { return {"in_proj"}; }

 private:
  CausalConvolution conv_;
  Linear in_proj_, out_proj_;
};

}  // namespace trainer
