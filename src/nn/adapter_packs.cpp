#include "nn/adapter_packs.h"

#include <algorithm>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

namespace trainer {

bool AdapterPacks::are_small(const PackedAdapters& packed, const at::Tensor& x) {
  constexpr int64_t kPart = 8;
  return kPart * (packed.a.numel() + packed.b.numel()) <= x.numel();
}

void AdapterPacks::begin() {
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView plain;
  std::vector<AdapterGroup> waiting;
  for (const Group& group : groups_)
    if (group.type == groups_[0].type) waiting.push_back(group.adapters);
  if (waiting.empty()) return;
  std::vector<PackedAdapters> packed = pack_adapter_groups(waiting, groups_[0].type);
  auto next = packed.begin();
  for (Group& group : groups_)
    if (group.type == groups_[0].type) group.packed = std::move(*next++);
}

void AdapterPacks::end() {
  for (Group& group : groups_) group.packed.a = group.packed.b = at::Tensor();
}

PackedAdapters AdapterPacks::get(const AdapterGroup& adapters, const at::Tensor& x) {
  const auto adapted = std::ranges::find_if(adapters.a, [](const at::Tensor& a) { return a.size(0) > 0; });
  const void* key = adapted->unsafeGetTensorImpl();
  const auto known = of_first_a_.find(key);
  if (known != of_first_a_.end()) {
    Group& group = groups_[known->second];
    if (group.type == x.scalar_type()) {
      if (!group.packed.a.defined()) group.packed = pack_adapters(adapters.a, adapters.b, group.type);
      return group.packed;
    }
  }
  PackedAdapters packed = pack_adapters(adapters.a, adapters.b, x.scalar_type());
  if (known == of_first_a_.end() && are_small(packed, x)) {
    of_first_a_[key] = groups_.size();
    groups_.push_back({adapters, x.scalar_type(), packed});
  }
  return packed;
}

}  // namespace trainer
