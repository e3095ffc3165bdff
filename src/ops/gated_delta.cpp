#include "ops/gated_delta.h"

#include <ATen/ATen.h>

#include "device/op.h"

namespace trainer {
namespace {

constexpr Op kGatedDelta{"trainer::gated_delta", gated_delta_cpu, gated_delta_gpu};
constexpr Op kGatedDeltaBackward{"trainer::gated_delta_backward", gated_delta_backward_cpu,
                                 gated_delta_backward_gpu};

}  // namespace

DeltaResult gated_delta(const DeltaInputs& in, const DeltaShape& shape, const TokenRuns& runs,
                        bool wants_last_states) {
  return kGatedDelta(in, shape, runs, wants_last_states);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> gated_delta_backward(const at::Tensor& grad,
                                                                    const DeltaInputs& in,
                                                                    const at::Tensor& kept_states,
                                                                    const DeltaShape& shape,
                                                                    const TokenRuns& runs) {
  return kGatedDeltaBackward(grad, in, kept_states, shape, runs);
}

}  // namespace trainer
