// Tensors from the host to where they are computed with.
#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

namespace trainer {

// To a GPU they are copied on a stream of their own, so that they are there when the GPU is done with what
// was asked of it before. They must lie in page-locked memory, which LibTorch keeps until they are copied.
class Upload {
 public:
  explicit Upload(at::Device device);

  // To be used only after wait().
  at::Tensor operator()(const at::Tensor& host);
  // What is asked of the current stream from now on waits for the copies; the host does not.
  void wait();

 private:
  at::Device device_;
  std::optional<c10::Stream> stream_;  // of the copies, on a GPU
  std::vector<at::Tensor> copies_;
};

}  // namespace trainer
