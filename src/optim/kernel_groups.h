// The tensors of an update by their types: one launch updates all of a group.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "device/kernels.h"

namespace trainer {

// Returns the name that kernels have for the type of the tensor's elements; an undefined tensor counts as
// fp32.
inline const char* kernel_type(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.scalar_type() == at::kFloat) return "float";
  TORCH_CHECK(tensor.scalar_type() == at::kBFloat16, "the update of ", tensor.scalar_type(),
              " is not supported");
  return "bf16";
}

template <class Item>
struct KernelGroup {
  std::vector<const Item*> items;
  const Kernels* kernels;  // nullptr: the composite
  size_t first_row = 0;    // in the kernels' table
  int rows = 0;
  int64_t blocks = 0;
};

// Returns the groups, in the same order at every call, so that an interrupted update continues. `types_of`
// returns the kernels' types for an item: "Weight=bf16 Gradient=float".
template <class Item, class TypesOf>
std::vector<KernelGroup<Item>> kernel_groups(const std::vector<Item>& items, const KernelFile& file,
                                             const TypesOf& types_of) {
  std::map<std::string, std::vector<const Item*>> by_types;
  for (const Item& item : items) by_types[types_of(item.tensors)].push_back(&item);
  const at::Device device = items.front().tensors.weight.device();
  std::vector<KernelGroup<Item>> groups;
  for (auto& [types, members] : by_types)
    groups.push_back({std::move(members), find_kernels(device, file, types)});
  return groups;
}

// Calls launch(group) for each group that has kernels, except in a rehearsal, and composite(item) for each
// item of the others. Those that were written before the update was interrupted are left out.
template <class Item, class Progress, class Launch, class Composite>
void update_groups(const std::vector<KernelGroup<Item>>& groups, Progress& progress, const Launch& launch,
                   const Composite& composite) {
  size_t end = 0;
  for (const KernelGroup<Item>& group : groups) {
    const size_t first = std::exchange(end, end + group.items.size());
    if (progress.next >= end) continue;
    if (group.kernels == nullptr) {
      for (; progress.next < end; progress.next++) {
        composite(*group.items[progress.next - first]);
        progress.done = 0;
      }
    } else if (!progress.rehearsal) {
      launch(group);
    }
    progress.next = end;
  }
}

}  // namespace trainer
