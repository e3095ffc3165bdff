// The update of 8-bit AdamW on a GPU: adamw_8bit.cu, one launch for all tensors of the same types.
#include <ATen/ATen.h>

#include "trainer/base/strings.h"
#include "trainer/optim/adamw_8bit.h"

#include "device/kernels.h"
#include "optim/adamw_8bit_arithmetic.h"
#include "optim/kernel_groups.h"
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

std::string coded_types_of(const Adamw8bitTensors& t) {
  return concat("Weight=", kernel_type(t.weight), " Gradient=", kernel_type(t.gradient));
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

}  // namespace

void adamw_8bit_update_gpu(const std::vector<Adamw8bitItem>& items, const at::Tensor& gradient_scale,
                           AdamwProgress& progress) {
  const at::Device device = items.front().tensors.weight.device();
  auto groups = kernel_groups(items, kernel_files::adamw_8bit, coded_types_of);
  std::vector<at::Tensor> gradients;  // they live until the launches
  std::vector<Adamw8bitRow> rows;
  for (auto& group : groups) {
    if (group.kernels == nullptr) continue;
    group.first_row = rows.size();
    group.rows = static_cast<int>(group.items.size());
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
  update_groups(
      groups, progress,
      [&](const auto& group) {
        group.kernels->start("adamw_8bit_update", grid_of_blocks(group.blocks), table.const_data_ptr(),
                             static_cast<int>(group.first_row), group.rows, kBlockElements,
                             codes.const_data_ptr(), gradient_scale.const_data_ptr());
      },
      [&](const Adamw8bitItem& item) {
        adamw_8bit_update_composite(item.tensors, gradient_scale, item.update, progress);
      });
}

}  // namespace trainer
