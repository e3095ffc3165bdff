// The update on a GPU: adamw.cu, one launch for all tensors of the same types.
#include <ATen/ATen.h>

#include "trainer/base/strings.h"
#include "trainer/optim/adamw.h"

#include "device/kernels.h"
#include "optim/adamw_coefficients.h"
#include "optim/kernel_groups.h"
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

std::string types_of(const AdamwTensors& t) {
  return concat("Weight=", kernel_type(t.weight), " Gradient=", kernel_type(t.gradient),
                " State=", kernel_type(t.exp_avg));
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

}  // namespace

void adamw_update_gpu(const std::vector<AdamwItem>& items, const at::Tensor& gradient_scale,
                      AdamwProgress& progress) {
  auto groups = kernel_groups(items, kernel_files::adamw, types_of);
  std::vector<at::Tensor> gradients;  // they live until the launches
  std::vector<AdamwRow> rows;
  for (auto& group : groups) {
    if (group.kernels == nullptr) continue;
    group.first_row = rows.size();
    group.rows = static_cast<int>(group.items.size());
    for (const AdamwItem* item : group.items) {
      const at::Tensor& gradient = gradients.emplace_back(item->tensors.gradient.contiguous());
      rows.push_back(row_of(*item, gradient, group.blocks));
      group.blocks += blocks_for(gradient.numel());
    }
  }
  const at::Tensor table = kernel_table(rows, items.front().tensors.weight.device());
  // From here on only the composite allocates.
  update_groups(
      groups, progress,
      [&](const auto& group) {
        group.kernels->start("adamw_update", grid_of_blocks(group.blocks), table.const_data_ptr(),
                             static_cast<int>(group.first_row), group.rows, kBlockElements,
                             gradient_scale.const_data_ptr());
      },
      [&](const AdamwItem& item) {
        adamw_update_composite(item.tensors, gradient_scale, item.update, progress);
      });
}

}  // namespace trainer
