// The recurrent part of a Gated DeltaNet layer: a causal convolution with SiLU over queries, keys and values,
// and the gated delta rule (ops/gated_delta.h).
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/gated_delta.h"

namespace trainer {

// Takes qkv [tokens, columns] before the convolution, decay and beta as in DeltaInputs, and the convolution's
// weight [columns, 1, width] in qkv's type. Returns [tokens, values]; differentiable. Keeps its inputs and a
// few states; the convolution runs again in backward.
at::Tensor gated_delta_rule(const DeltaInputs& in, const at::Tensor& conv_weight, const DeltaShape& shape,
                            const TokenRuns& runs);

}  // namespace trainer
