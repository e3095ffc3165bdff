#include "models/convolved_runs.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "ops/causal_conv.h"

namespace trainer {

CausalConvolution::CausalConvolution(int64_t channels, int64_t width, bool has_bias)
    : weight({channels, 1, width}) {
  add("weight", weight);
  if (has_bias) add("bias", bias.emplace(std::vector<int64_t>{channels}));
}

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
    runs.push_back({row * seq, pass.has_one_token() ? seq : pass.lengths[static_cast<size_t>(row)]});
  return runs;
}

// The last `count` rows of each run, or zeros before it: [runs, count, columns].
static at::Tensor ends_of(const at::Tensor& x, const TokenRuns& runs, int64_t count) {
  const at::Tensor out = at::zeros({std::ssize(runs), count, x.size(1)}, x.options());
  for (size_t i = 0; i < runs.size(); i++) {
    const int64_t there = std::min(count, runs[i].tokens);
    out[static_cast<int64_t>(i)]
        .narrow(0, count - there, there)
        .copy_(x.narrow(0, runs[i].first + runs[i].tokens - there, there));
  }
  return out;
}

at::Tensor convolve_on(const at::Tensor& x, const at::Tensor& weight, bool silu, const TokenRuns& runs,
                       const DecoderPass& pass, KvCache& cache) {
  const int64_t width = weight.size(2);
  if (!pass.has_one_token()) {
    KvCache::add_rows(cache.tail, ends_of(x, runs, width - 1));
    return causal_conv(x, weight, runs, silu);
  }
  const at::Tensor window = at::cat({cache.tail, x.unsqueeze(1)}, 1);  // [B, width, channels]
  TokenRuns windows;
  for (int64_t row = 0; row < window.size(0); row++) windows.push_back({row * width, width});
  cache.tail = window.narrow(1, 1, width - 1);
  return causal_conv(window.flatten(0, 1), weight, windows, silu).view(window.sizes()).select(1, width - 1);
}

}  // namespace trainer
