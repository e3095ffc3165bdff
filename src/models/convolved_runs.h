// What layers with a causal convolution over the tokens share (ops/causal_conv.h).
#pragma once

#include "models/decoder.h"
#include "ops/token_runs.h"

namespace trainer {

// Its weight on disk [channels, 1, width], and perhaps a bias [channels].
struct CausalConvolution : Module {
  CausalConvolution(int64_t channels, int64_t width, bool has_bias = false);
  Parameter weight;
  std::optional<Parameter> bias;
};

// Where the samples of a pass lie among its [batch * seq] rows.
TokenRuns runs_of(const DecoderPass& pass, int64_t batch, int64_t seq);

// The convolution of x [tokens, channels] while generating. After the prompts, x has a new token of each row,
// which is convolved as the last of a run; the cache has the tokens before it, and gets this one.
at::Tensor convolve_on(const at::Tensor& x, const at::Tensor& weight, bool silu, const TokenRuns& runs,
                       const DecoderPass& pass, KvCache& cache);

}  // namespace trainer
