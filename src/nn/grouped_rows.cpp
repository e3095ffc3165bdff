#include "nn/grouped_rows.h"

#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/attention_heads.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What forward and backward share.
struct GroupedLayout : torch::CustomClassHolder {
  AttentionGroups groups;
  GroupSide side = GroupSide::queries;
  int64_t heads = 0, tokens = 0;
  at::ScalarType type = at::kFloat;

  const PaddedRows& rows(const AttentionGroup& group) const {
    return side == GroupSide::queries ? group.queries : group.keys;
  }
  // x [tokens, heads * head_dim]
  variable_list apart(const at::Tensor& x) const {
    variable_list parts;
    for (const AttentionGroup& group : *groups)
      parts.push_back(padded_heads(x, rows(group), group.samples, heads).unflatten(0, {-1, heads}));
    return parts;
  }
  at::Tensor together(const variable_list& parts) const {
    const at::Tensor out = at::empty({tokens, heads * parts[0].size(3)}, parts[0].options().dtype(type));
    for (size_t i = 0; i < parts.size(); i++)
      put_back(out, parts[i].contiguous().flatten(0, 1), rows((*groups)[i]), heads);
    return out;
  }
};

using LayoutPtr = c10::intrusive_ptr<GroupedLayout>;

LayoutPtr layout_in(AutogradContext* ctx) {
  return c10::static_intrusive_pointer_cast<GroupedLayout>(ctx->saved_data["layout"].toCapsule());
}

struct InGroups : torch::autograd::Function<InGroups> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const LayoutPtr& layout) {
    ctx->saved_data["layout"] = c10::IValue::make_capsule(layout);
    return layout->apart(x);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {layout_in(ctx)->together(grads), {}};
  }
};

struct OutOfGroups : torch::autograd::Function<OutOfGroups> {
  // Autograd finds the tensors of a TensorList, and not those of a vector.
  static at::Tensor forward(AutogradContext* ctx, at::TensorList parts, const LayoutPtr& layout) {
    ctx->saved_data["layout"] = c10::IValue::make_capsule(layout);
    return layout->together(parts.vec());
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    variable_list out = layout_in(ctx)->apart(grads[0]);
    out.emplace_back();
    return out;
  }
};

}  // namespace

AttentionGroups shared_groups(const std::vector<AttentionGroup>& groups) {
  return std::make_shared<const std::vector<AttentionGroup>>(groups);
}

std::vector<at::Tensor> in_groups(const at::Tensor& packed, const AttentionGroups& groups, GroupSide side) {
  auto layout = c10::make_intrusive<GroupedLayout>();
  layout->groups = groups;
  layout->side = side;
  layout->heads = packed.size(1);
  layout->tokens = packed.size(2);
  layout->type = packed.scalar_type();
  return InGroups::apply(packed.squeeze(0).transpose(0, 1).flatten(1), layout);
}

at::Tensor out_of_groups(const std::vector<at::Tensor>& parts, const AttentionGroups& groups, int64_t tokens,
                         at::ScalarType type) {
  auto layout = c10::make_intrusive<GroupedLayout>();
  layout->groups = groups;
  layout->heads = parts[0].size(1);
  layout->tokens = tokens;
  layout->type = type;
  return OutOfGroups::apply(at::TensorList(parts), layout)
      .unflatten(1, {layout->heads, -1})
      .transpose(0, 1)
      .unsqueeze(0);
}

}  // namespace trainer
