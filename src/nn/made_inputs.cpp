#include "nn/made_inputs.h"

#include <tuple>

#include "ops/dropout.h"
#include "ops/rms_norm.h"

namespace trainer {

// rms_norm() has the bits of a norm that was computed together with a sum (ops/add_norm.h).
LayerInput norm_input(const RmsNorm& norm, const at::Tensor& x, const at::Tensor& normed,
                      const ForwardContext& context) {
  LayerInput in(normed);
  if (!context.light) return in;
  in.from = {x.detach(), norm.weight.as(x.scalar_type()).detach()};
  const double epsilon = norm.facts().epsilon;
  const bool plus_one = norm.facts().scale == NormScale::one_plus_weight;
  in.make = [=](const std::vector<at::Tensor>& from) {
    return std::get<0>(rms_norm(from[0], from[1], epsilon, plus_one));
  };
  return in;
}

LayerInput gated_input(Activation kind, const at::Tensor& gate, const at::Tensor& up,
                       const ForwardContext& context) {
  LayerInput in(gated_activation(kind, gate, up));
  if (!context.light || !has_gated_kernel(kind)) return in;
  in.from = {gate.detach(), up.detach()};
  in.make = [kind](const std::vector<at::Tensor>& from) {
    return gated_apply(from[0], from[1], static_cast<int64_t>(kind));
  };
  return in;
}

LayerInput dropped_input(const LayerInput& in, const at::Tensor& row_keys, uint64_t key, double p) {
  LayerInput out(dropout(in.x, row_keys, key, p));
  if (!in.make) return out;
  out.from = in.from;
  if (p == 0.0) {
    out.make = in.make;
    return out;
  }
  out.from.push_back(row_keys);
  out.make = [make = in.make, key, p](std::vector<at::Tensor> from) {
    const at::Tensor keys = from.back();
    from.pop_back();
    return dropout_apply(make(from), keys, key, p);
  };
  return out;
}

}  // namespace trainer
