// Packed tokens in the groups of their samples, and back.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/data/sample.h"

namespace trainer {

using AttentionGroups = std::shared_ptr<const std::vector<AttentionGroup>>;

// What the functions of a pass share, who outlive the batch of these groups.
AttentionGroups shared_groups(const std::vector<AttentionGroup>& groups);

enum class GroupSide { queries, keys };

// Takes packed tokens [1, heads, tokens, head_dim]. Returns for each group [samples, heads, length,
// head_dim], padded with 0, in the type of products (product_type()); differentiable.
std::vector<at::Tensor> in_groups(const at::Tensor& packed, const AttentionGroups& groups, GroupSide side);

// The inverse for queries: returns [1, heads, tokens, head_dim] in `type`, laid out in memory as [1, tokens,
// heads, head_dim].
at::Tensor out_of_groups(const std::vector<at::Tensor>& parts, const AttentionGroups& groups, int64_t tokens,
                         at::ScalarType type);

}  // namespace trainer
