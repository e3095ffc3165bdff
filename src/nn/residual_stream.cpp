#include "nn/residual_stream.h"

#include <ATen/ATen.h>

#include "nn/made_inputs.h"
#include "ops/dropout.h"

namespace trainer {

void ResidualStream::add(const at::Tensor& part, const at::Tensor& row_keys, uint64_t key, double p) {
  sum();
  part_ = part;
  row_keys_ = row_keys;
  key_ = key;
  p_ = p;
}

at::Tensor ResidualStream::sum() {
  if (part_.defined()) {
    x_ = x_ + dropout(part_, row_keys_, key_, p_);
    part_.reset();
  }
  return x_;
}

at::Tensor ResidualStream::normed(const RmsNorm& norm) {
  if (!part_.defined()) return norm.forward(x_);
  at::Tensor out;
  std::tie(x_, out) = norm.after_sum(x_, part_, row_keys_, key_, p_);
  part_.reset();
  return out;
}

LayerInput ResidualStream::input(const RmsNorm& norm, const ForwardContext& context) {
  const at::Tensor out = normed(norm);  // x_ is the sum now
  return norm_input(norm, x_, out, context);
}

}  // namespace trainer
