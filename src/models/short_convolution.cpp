#include "models/short_convolution.h"

#include <ATen/ATen.h>

#include "nn/causal_convolution.h"

namespace trainer {

ShortConvolution::ShortConvolution(const DecoderConfig& c)
    : conv_(c.hidden_size, c.conv_width, c.conv_bias),
      in_proj_(c.hidden_size, 3 * c.hidden_size, c.conv_bias),
      out_proj_(c.hidden_size, c.hidden_size, c.conv_bias) {
  add("conv", conv_);
  add("in_proj", in_proj_);
  add("out_proj", out_proj_);
}

at::Tensor ShortConvolution::forward(const LayerInput& x, const DecoderPass& pass, KvCache* cache) const {
  const std::vector<at::Tensor> bcx = in_proj_.forward(x, pass.rows, *pass.context).chunk(3, -1);
  const at::Tensor gated = (bcx[0] * bcx[2]).flatten(0, 1);  // [B * S, D]
  const at::Tensor weight = conv_.weight.as(gated.scalar_type());
  const TokenRuns runs = runs_of(pass, x.x.size(0), x.x.size(1));
  at::Tensor mixed = cache == nullptr ? causal_convolution(gated, weight, runs)
                                      : convolve_on(gated, weight, /*silu=*/false, runs, pass, *cache);
  if (conv_.bias) mixed = mixed + conv_.bias->as(gated.scalar_type());
  return out_proj_.forward(bcx[1] * mixed.view(x.x.sizes()), pass.rows, *pass.context);
}

}  // namespace trainer
