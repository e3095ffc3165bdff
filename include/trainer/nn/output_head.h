// The output projection as one matrix product, also where an adapter is on it: logits = states weight^T.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/nn/context.h"
#include "trainer/nn/linear.h"

namespace trainer {

// hidden [n, hidden_size] with row_keys [n]. Without an adapter: hidden itself. With one, the low-rank states
// are further columns, [n, hidden_size + r]. DoRA with dropout is not supported here.
at::Tensor head_states(const Linear& head, const at::Tensor& hidden, const at::Tensor& row_keys,
                       const ForwardContext& context);

// [vocab, hidden_size], or with an adapter [vocab, hidden_size + r], in `type`.
at::Tensor head_weight(const Linear& head, at::ScalarType type);

}  // namespace trainer
