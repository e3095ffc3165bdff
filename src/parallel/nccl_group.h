// Ranks whose GPUs are connected by NCCL. The library is opened at run time, as CUDA is: the one that comes
// with LibTorch. https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api.html
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "trainer/parallel/ranks.h"
#include "trainer/parallel/tensor_exchange.h"

namespace trainer {

class NcclGroup {
 public:
  // Connects the GPUs of all ranks; every rank must call it. Returns nullptr on every rank when one has no
  // NCCL or cannot be connected; rank 0 logs why.
  static std::unique_ptr<NcclGroup> connect(const Ranks& ranks, c10::Device device);
  ~NcclGroup();

  // As TensorExchange, for contiguous tensors in fp32 or bf16 on the device, in one call of the library. They
  // wait until all ranks are done, and throw LostRank when they are not after parallel.timeout.
  void all_reduce(const std::vector<SharedTensor>& tensors);
  void broadcast(const std::vector<SharedTensor>& tensors);
  // The same for tensors of bytes that one rank gives to another.
  void send_recv(const std::vector<Transfer>& tensors);

 private:
  struct Library;
  struct Connection;
  explicit NcclGroup(std::unique_ptr<Connection> connection);
  static std::string opened(std::unique_ptr<Connection>& connection, int64_t ranks, const std::string& id);
  template <class Shared, class Launch>
  void launch(const std::vector<Shared>& tensors, const Launch& one);
  void wait();

  std::unique_ptr<Connection> connection_;
};

}  // namespace trainer
