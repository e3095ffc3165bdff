// The update of 8-bit AdamW on a GPU: kernels/adamw_8bit.cu, one launch for all tensors of the same types.
#include <map>
#include <utility>

#include <ATen/ATen.h>

#include "trainer/base/strings.h"
#include "trainer/device/kernels.h"
#include "trainer/optim/adamw_8bit.h"

#include "optim/adamw_8bit_arithmetic.h"
#include "optim/kernel_table.h"
#include "optim/moment_codes.h"

namespace trainer {

namespace kernel_files {
extern const KernelFile adamw_8bit;
}

namespace {

// A row of the kernel's table.
struct Adamw8bitRow {
  void* weight;
  const void* gradient;
  void *exp_avg, *exp_avg_sq, *exp_avg_absmax, *exp_avg_sq_absmax, *master;
  uint64_t key;
  int64_t count;
  Coefficients8bit coefficients;
  int32_t first_block;
};

// Tensors of the same types.
struct Adamw8bitGroup {
  std::vector<const Adamw8bitItem*> items;
  const Kernels* kernels;  // nullptr: the composite
  size_t first_row = 0;    // in the table
  int64_t blocks = 0;
};

const char* type_of_element(const at::Tensor& tensor) {
  const bool fp32 = tensor.scalar_type() == at::kFloat;
  TORCH_CHECK(fp32 || tensor.scalar_type() == at::kBFloat16, "adamw_8bit: ", tensor.scalar_type(),
              " is not supported");
  return fp32 ? "float" : "bf16";
}

// In the same order at every call, so that an interrupted update continues.
std::vector<Adamw8bitGroup> coded_groups_of(const std::vector<Adamw8bitItem>& items) {
  std::map<std::string, std::vector<const Adamw8bitItem*>> by_types;
  for (const Adamw8bitItem& item : items) {
    const Adamw8bitTensors& t = item.tensors;
    by_types[concat("Weight=", type_of_element(t.weight), " Gradient=", type_of_element(t.gradient))]
        .push_back(&item);
  }
  const at::Device device = items.front().tensors.weight.device();
  std::vector<Adamw8bitGroup> groups;
  for (auto& [types, members] : by_types)
    groups.push_back({std::move(members), find_kernels(device, kernel_files::adamw_8bit, types)});
  return groups;
}

Adamw8bitRow coded_row_of(const Adamw8bitItem& item, const at::Tensor& gradient, int64_t first_block) {
  const Adamw8bitTensors& t = item.tensors;
  return {t.weight.mutable_data_ptr(),
          gradient.const_data_ptr(),
          t.exp_avg.mutable_data_ptr(),
          t.exp_avg_sq.mutable_data_ptr(),
          t.exp_avg_absmax.mutable_data_ptr(),
          t.exp_avg_sq_absmax.mutable_data_ptr(),
          t.master.defined() ? t.master.mutable_data_ptr() : nullptr,
          item.update.key,
          t.weight.numel(),
          Coefficients8bit(item.update),
          static_cast<int32_t>(first_block)};
}

// Tensor by tensor; `first`: how many are in the groups before.
void update_coded_by_composite(const Adamw8bitGroup& group, size_t first, const at::Tensor& gradient_scale,
                               AdamwProgress& progress) {
  for (; progress.next < first + group.items.size(); progress.next++) {
    const Adamw8bitItem& item = *group.items[progress.next - first];
    adamw_8bit_update_composite(item.tensors, gradient_scale, item.update, progress);
    progress.done = 0;
  }
}

}  // namespace

void adamw_8bit_update_gpu(const std::vector<Adamw8bitItem>& items, const at::Tensor& gradient_scale,
                           AdamwProgress& progress) {
  const at::Device device = items.front().tensors.weight.device();
  std::vector<Adamw8bitGroup> groups = coded_groups_of(items);
  std::vector<at::Tensor> gradients;  // they live until the launches
  std::vector<Adamw8bitRow> rows;
  for (Adamw8bitGroup& group : groups) {
    if (group.kernels == nullptr) continue;
    group.first_row = rows.size();
    for (const Adamw8bitItem* item : group.items) {
      const at::Tensor& gradient = gradients.emplace_back(item->tensors.gradient.contiguous());
      rows.push_back(coded_row_of(*item, gradient, group.blocks));
      group.blocks += blocks_for(gradient.numel());
    }
  }
  const at::Tensor table = kernel_table(rows, device);
  const at::Tensor codes =
      kernel_table(std::vector<MomentCodes>{codes_of_exp_avg(), codes_of_exp_avg_sq()}, device);
  // From here on only the composite allocates.
  size_t end = 0;
  for (const Adamw8bitGroup& group : groups) {
    const size_t first = std::exchange(end, end + group.items.size());
    if (progress.next >= end) continue;  // written before the update was interrupted
    if (group.kernels == nullptr) {
      update_coded_by_composite(group, first, gradient_scale, progress);
    } else if (!progress.rehearsal) {
      group.kernels->start("adamw_8bit_update", grid_of_blocks(group.blocks), table.const_data_ptr(),
                           static_cast<int>(group.first_row), static_cast<int>(group.items.size()),
                           kBlockElements, codes.const_data_ptr(), gradient_scale.const_data_ptr());
    }
    progress.next = end;
  }
}

}  // namespace trainer
