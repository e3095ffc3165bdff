// Copies tensors from the host to the device.
#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

namespace trainer {

// Copies to a GPU run on a separate stream, so that they are done by the time the GPU has finished its
// earlier work. The tensors must be in page-locked memory, which LibTorch keeps until they are copied.
class Upload {
 public:
  explicit Upload(at::Device device);

  // The result may be used only after wait().
  at::Tensor operator()(const at::Tensor& host);
  // Later work on the current stream waits for the copies; the host does not wait.
  void wait();

 private:
  at::Device device_;
  std::optional<c10::Stream> stream_;  // of the copies, on a GPU
  std::vector<at::Tensor> copies_;
};

}  // namespace trainer
