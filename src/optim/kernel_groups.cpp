#include "optim/kernel_groups.h"

#include <algorithm>

#include <ATen/ATen.h>

namespace trainer {

// LibTorch hands out the same page-locked memory again, but not before it is copied.
at::Tensor bytes_on_device(std::span<const std::byte> bytes, at::Device device) {
  const at::TensorOptions options(at::kByte);
  const auto size = static_cast<int64_t>(bytes.size());
  at::Tensor there = at::empty({size}, options.device(device));
  if (device.is_meta()) return there;
  at::Tensor here = at::empty({size}, options.pinned_memory(device.is_cuda()));
  std::ranges::copy(bytes, static_cast<std::byte*>(here.mutable_data_ptr()));
  return there.copy_(here, /*non_blocking=*/true);
}

}  // namespace trainer
