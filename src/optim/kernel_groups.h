// The tensors of an update on a GPU, by their types: one launch works through all of a group. It reads a
// table of them (updates.cuh).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "trainer/base/strings.h"

#include "device/kernels.h"

namespace trainer {

// A block works on so many elements of one tensor. Each row names the tensor's first block.
inline constexpr int kBlockElements = 8192;
inline int64_t blocks_for(int64_t elements) { return (elements + kBlockElements - 1) / kBlockElements; }
inline KernelGrid grid_of_blocks(int64_t blocks) { return {blocks, 1, 256}; }

// Returns the bytes on the device. The copy is queued on the current stream, and the host does not wait.
// LibTorch hands out the same page-locked memory again, but not before it is copied.
inline at::Tensor bytes_on_device(std::span<const std::byte> bytes, at::Device device) {
  const at::TensorOptions options(at::kByte);
  const auto size = static_cast<int64_t>(bytes.size());
  at::Tensor there = at::empty({size}, options.device(device));
  if (device.is_meta()) return there;
  at::Tensor here = at::empty({size}, options.pinned_memory(device.is_cuda()));
  std::ranges::copy(bytes, static_cast<std::byte*>(here.mutable_data_ptr()));
  return there.copy_(here, /*non_blocking=*/true);
}

// Returns the rows on the device.
template <class Row>
at::Tensor kernel_table(const std::vector<Row>& rows, at::Device device) {
  return bytes_on_device(std::as_bytes(std::span(rows)), device);
}

// Returns the name that kernels have for the type of the tensor's elements; an undefined tensor counts as
// fp32.
inline const char* kernel_type(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.scalar_type() == at::kFloat) return "float";
  TORCH_CHECK(tensor.scalar_type() == at::kBFloat16, "the update of ", tensor.scalar_type(),
              " is not supported");
  return "bf16";
}

// Returns "Weight=bf16 Gradient=float State=float".
template <class Tensors>
std::string kernel_types(const Tensors& t) {
  return concat("Weight=", kernel_type(t.weight), " Gradient=", kernel_type(t.gradient),
                " State=", kernel_type(t.exp_avg));
}

template <class Item>
struct KernelGroup {
  std::vector<const Item*> items;
  const Kernels* kernels;
  size_t first_row = 0;  // in the kernels' table
  int rows = 0;
  int64_t blocks = 0;
};

// All tensors of an update, and their rows in the kernels' table.
template <class Item, class Row>
struct KernelGroups {
  std::vector<KernelGroup<Item>>
      groups;  // in the same order at every call, so that an interrupted update continues
  std::vector<Row> rows;
  std::vector<at::Tensor> gradients;  // they must live until the launches
};

// `types_of(tensors)` returns the kernels' types: "Weight=bf16 Gradient=float". `row_of(item, gradient,
// first_block)` makes a row, and `blocks_of(row)` tells its blocks. An empty tensor gets none.
template <class Item, class TypesOf, class RowOf, class BlocksOf>
auto kernel_groups(const std::vector<Item>& items, const KernelFile& file, const TypesOf& types_of,
                   const RowOf& row_of, const BlocksOf& blocks_of) {
  std::map<std::string, std::vector<const Item*>> by_types;
  for (const Item& item : items) by_types[types_of(item.tensors)].push_back(&item);
  const at::Device device = items.front().tensors.weight.device();
  KernelGroups<Item, decltype(row_of(items.front(), at::Tensor(), int32_t{0}))> all;
  for (auto& [types, members] : by_types) {
    KernelGroup<Item>& group = all.groups.emplace_back(
        KernelGroup<Item>{std::move(members), &find_kernels(device, file, types), all.rows.size()});
    for (const Item* item : group.items) {
      if (item->tensors.weight.numel() == 0) continue;
      const at::Tensor& gradient = all.gradients.emplace_back(item->tensors.gradient.contiguous());
      all.rows.push_back(row_of(*item, gradient, static_cast<int32_t>(group.blocks)));
      group.blocks += blocks_of(all.rows.back());
      group.rows++;
    }
  }
  return all;
}

// Calls launch(group) for each group, except in a rehearsal and for those that were written before the update
// was interrupted.
template <class Item, class Progress, class Launch>
void update_groups(const std::vector<KernelGroup<Item>>& groups, Progress& progress, const Launch& launch) {
  size_t end = 0;
  for (const KernelGroup<Item>& group : groups) {
    end += group.items.size();
    if (progress.next >= end) continue;
    if (!progress.rehearsal) launch(group);
    progress.next = end;
  }
}

}  // namespace trainer
