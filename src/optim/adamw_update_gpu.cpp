// The update on a GPU: kernels/adamw.cu, one launch for all tensors of the same types.
#include <map>
#include <utility>

#include <ATen/ATen.h>

#include "trainer/base/strings.h"
#include "trainer/device/kernels.h"
#include "trainer/optim/adamw.h"

#include "optim/adamw_coefficients.h"
#include "optim/kernel_table.h"

namespace trainer {

namespace kernel_files {
extern const KernelFile adamw;
}

namespace {

// A row of the kernel's table.
struct AdamwRow {
  void* weight;
  const void* gradient;
  void *exp_avg, *exp_avg_sq, *master;
  uint64_t key;
  int64_t count;
  Coefficients coefficients;
  int32_t first_block;
};

// Tensors of the same types.
struct AdamwGroup {
  std::vector<const AdamwItem*> items;
  const Kernels* kernels;  // nullptr: the composite
  size_t first_row = 0;    // in the table
  int64_t blocks = 0;
};

const char* element_of(const at::Tensor& tensor) {
  const bool fp32 = tensor.scalar_type() == at::kFloat;
  TORCH_CHECK(fp32 || tensor.scalar_type() == at::kBFloat16, "adamw: ", tensor.scalar_type(),
              " is not supported");
  return fp32 ? "float" : "bf16";
}

// In the same order at every call, so that an interrupted update continues.
std::vector<AdamwGroup> groups_of(const std::vector<AdamwItem>& items) {
  std::map<std::string, std::vector<const AdamwItem*>> by_types;
  for (const AdamwItem& item : items) {
    const AdamwTensors& t = item.tensors;
    by_types[concat("Weight=", element_of(t.weight), " Gradient=", element_of(t.gradient),
                    " State=", element_of(t.exp_avg))]
        .push_back(&item);
  }
  const at::Device device = items.front().tensors.weight.device();
  std::vector<AdamwGroup> groups;
  for (auto& [types, members] : by_types)
    groups.push_back({std::move(members), find_kernels(device, kernel_files::adamw, types)});
  return groups;
}

AdamwRow row_of(const AdamwItem& item, const at::Tensor& gradient, int64_t first_block) {
  const AdamwTensors& t = item.tensors;
  return {t.weight.mutable_data_ptr(),
          gradient.const_data_ptr(),
          t.exp_avg.mutable_data_ptr(),
          t.exp_avg_sq.mutable_data_ptr(),
          t.master.defined() ? t.master.mutable_data_ptr() : nullptr,
          item.update.key,
          t.weight.numel(),
          Coefficients(item.update),
          static_cast<int32_t>(first_block)};
}

// Tensor by tensor; `first`: how many are in the groups before.
void update_by_composite(const AdamwGroup& group, size_t first, const at::Tensor& gradient_scale,
                         AdamwProgress& progress) {
  for (; progress.next < first + group.items.size(); progress.next++) {
    const AdamwItem& item = *group.items[progress.next - first];
    adamw_update_composite(item.tensors, gradient_scale, item.update, progress);
    progress.done = 0;
  }
}

}  // namespace

void adamw_update_gpu(const std::vector<AdamwItem>& items, const at::Tensor& gradient_scale,
                      AdamwProgress& progress) {
  std::vector<AdamwGroup> groups = groups_of(items);
  std::vector<at::Tensor> gradients;  // they live until the launches
  std::vector<AdamwRow> rows;
  for (AdamwGroup& group : groups) {
    if (group.kernels == nullptr) continue;
    group.first_row = rows.size();
    for (const AdamwItem* item : group.items) {
      const at::Tensor& gradient = gradients.emplace_back(item->tensors.gradient.contiguous());
      rows.push_back(row_of(*item, gradient, group.blocks));
      group.blocks += blocks_for(gradient.numel());
    }
  }
  const at::Tensor table = kernel_table(rows, items.front().tensors.weight.device());
  // From here on only the composite allocates.
  size_t end = 0;
  for (const AdamwGroup& group : groups) {
    const size_t first = std::exchange(end, end + group.items.size());
    if (progress.next >= end) continue;  // written before the update was interrupted
    if (group.kernels == nullptr) {
      update_by_composite(group, first, gradient_scale, progress);
    } else if (!progress.rehearsal) {
      group.kernels->start("adamw_update", grid_of_blocks(group.blocks), table.const_data_ptr(),
                           static_cast<int>(group.first_row), static_cast<int>(group.items.size()),
                           kBlockElements, gradient_scale.const_data_ptr());
    }
    progress.next = end;
  }
}

}  // namespace trainer
