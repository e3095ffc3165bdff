#include "optim/gradient_norm.h"

#include <string>

#include <ATen/ATen.h>

#include "device/kernels.h"
#include "device/observed.h"
#include "optim/kernel_groups.h"

namespace trainer {
namespace {

// A row of the kernel's table.
struct NormRow {
  const void* values;
  int64_t count;
  int32_t first_block, is_bf16;
};

}  // namespace

at::Tensor gradient_norm_gpu(const std::vector<at::Tensor>& gradients) {
  const at::Device device = gradients.front().device();
  const Kernels& kernels = find_kernels(device, kernel_file("gradient_norm"), "");
  std::vector<at::Tensor> contiguous;  // they live until the launch
  std::vector<NormRow> rows;
  int64_t blocks = 0;
  for (const at::Tensor& gradient : gradients) {
    const at::Tensor& one = contiguous.emplace_back(gradient.contiguous());
    const bool bf16 = kernel_type(one) == std::string("bf16");
    rows.push_back({one.const_data_ptr(), one.numel(), static_cast<int32_t>(blocks), bf16 ? 1 : 0});
    blocks += blocks_for(one.numel());
  }
  const at::Tensor table = kernel_table(rows, device);
  const at::TensorOptions options(device);
  at::Tensor sums = at::empty({blocks}, options.dtype(at::kDouble));
  at::Tensor norm = at::empty({}, options.dtype(at::kFloat));
  observed(
      "trainer::gradient_norm", [&] { return contiguous; },
      [&] {
        kernels.start("sum_squares", grid_of_blocks(blocks), table.const_data_ptr(),
                      static_cast<int>(rows.size()), kBlockElements, sums.mutable_data_ptr());
        kernels.start("finish_norm", {1, 1, 512}, sums.const_data_ptr(), blocks, norm.mutable_data_ptr());
      });
  return norm;
}

}  // namespace trainer
