// Copies tensors from the host to the device.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

namespace trainer {

// Returns an uninitialised tensor in host memory. For a GPU it is in page-locked memory, as long as the
// system has some.
at::Tensor empty_for_upload(at::IntArrayRef shape, at::ScalarType type, at::Device device);

// Returns these values in such a tensor.
template <class Value>
at::Tensor host_vector(const std::vector<Value>& values, at::Device device) {
  const at::Tensor tensor =
      empty_for_upload({static_cast<int64_t>(values.size())}, c10::CppTypeToScalarType<Value>(), device);
  std::ranges::copy(values, tensor.mutable_data_ptr<Value>());
  return tensor;
}

// Returns allocate(true). If that runs out of memory, the host has no page-locked memory left, and smaller
// micro-batches would not help. Then, and in all later calls, returns allocate(false). `refused` records
// this.
at::Tensor page_locked_if_possible(const std::function<at::Tensor(bool locked)>& allocate,
                                   std::atomic<bool>& refused);

// Copies to a GPU run on a separate stream, so that they are done by the time the GPU has finished its
// earlier work. The tensors should be from empty_for_upload(): LibTorch keeps page-locked memory until it is
// copied, and the host waits for a copy from ordinary memory.
class Upload {
 public:
  explicit Upload(at::Device device);

  // The result may be used only after wait().
  at::Tensor operator()(const at::Tensor& host);
  // Later work on the current stream waits for the copies; the host does not wait.
  void wait();

 private:
  at::Device device_;
  std::optional<c10::Stream> stream_;  // for the copies, on a GPU
  std::vector<at::Tensor> copies_;
};

}  // namespace trainer
