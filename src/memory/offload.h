// The memory of offloaded tensors (`memory.offload`): pinned host memory for a GPU, files in
// `memory.offload_dir` for the CPU. It is counted apart from the device's memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <ATen/core/Tensor.h>

namespace trainer {

// Sets the directory of the CPU's files, for all tensors from now on. Creates it if it is missing, removes
// what killed processes have left there, and warns if it lies in memory. Throws ConfigError, which names
// memory.offload_dir, when it cannot be used.
void set_offload_directory(const std::filesystem::path& directory);

// Returns zeros of this shape and type outside of the memory of options.device(). It is a tensor of the host:
// on the CPU it is used as it stands (its pages are read from the file when they are needed); for a GPU it is
// copied, or seen_from() it. On meta it stands for such a tensor, and a memory plan counts it apart. Throws
// OutOfMemoryError (the program's own: nothing can be retried) when there is no room.
at::Tensor offloaded_zeros(at::IntArrayRef sizes, const at::TensorOptions& options);

// Returns the same memory as a tensor of `device`, for whose kernels it is ordinary memory that is slow: each
// access goes over PCIe. On the CPU and on meta: the tensor itself.
at::Tensor seen_from(const at::Tensor& offloaded, at::Device device);

// Returns what seen_from() was given, once its GPU has done all that was asked of it. A tensor of the host:
// the tensor itself.
at::Tensor on_host(const at::Tensor& seen);

// Returns whether the tensor's memory is the one described above; false on meta.
bool is_offloaded(const at::Tensor& tensor);

// Say that a tensor in a file will be used next, so that its pages are read ahead, and that it is not used
// for now, so that its pages leave the process (the system writes them to the file and reads them again). Do
// nothing for other tensors, such as those of pinned memory.
void fetch_offloaded(const at::Tensor& tensor);
void release_offloaded(const at::Tensor& tensor);

struct OffloadUse {
  int64_t in_use = 0;  // bytes of living tensors, in units of 64
  int64_t peak = 0;    // the highest in_use so far
  int64_t moved = 0;   // bytes that went up or down, as count_moved() was told
};
OffloadUse offload_use();
// Adds to OffloadUse::moved. Call it also on meta: a plan estimates the time of a step from it.
void count_moved(int64_t bytes);

// Bytes that can be offloaded from `device` now: the space on the disk of `directory`, which need not exist
// yet, or the host's free memory. Throws FormatError when the system does not report it.
int64_t room_below(at::Device device, const std::filesystem::path& directory);

}  // namespace trainer
