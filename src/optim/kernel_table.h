// Tables of tensors, so that one launch works through all of them: rows.cuh reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "device/kernels.h"

namespace trainer {

// A block works on so many elements of one tensor. Each row names the tensor's first block.
inline constexpr int kBlockElements = 8192;
inline int64_t blocks_for(int64_t elements) { return (elements + kBlockElements - 1) / kBlockElements; }
inline KernelGrid grid_of_blocks(int64_t blocks) { return {blocks, 1, 256}; }

// Returns the bytes on the device. The copy is queued on the current stream, and the host does not wait.
at::Tensor bytes_on_device(std::span<const std::byte> bytes, at::Device device);

// Returns the rows on the device.
template <class Row>
at::Tensor kernel_table(const std::vector<Row>& rows, at::Device device) {
  return bytes_on_device(std::as_bytes(std::span(rows)), device);
}

}  // namespace trainer
