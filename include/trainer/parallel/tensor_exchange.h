// Adds up many tensors over the ranks, or copies them between ranks, in few large messages.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "trainer/parallel/ranks.h"

namespace trainer {

// A tensor of the same name, shape and type on every rank.
struct SharedTensor {
  at::Tensor tensor;
  std::optional<int64_t> owner;  // the rank it belongs to; none: all
};

class NcclGroup;

class TensorExchange {
 public:
  static constexpr int64_t kMessageBytes = 16 << 20;

  // Connects the GPUs by NCCL; on the CPU, and where there is no NCCL, allocates room for one message in main
  // memory. Does nothing for one rank alone. `bytes`: of all tensors that are exchanged. `ranks` must outlive
  // it.
  TensorExchange(const Ranks& ranks, at::Device device, int64_t bytes);
  ~TensorExchange();

  // Replaces each tensor by its sum over the ranks, in its own type: at its owner, whose sum then has the
  // same bits as with every other rank, or everywhere. What other ranks keep has any values. Throws LostRank.
  // Allocates nothing for contiguous tensors.
  void all_reduce(const std::vector<SharedTensor>& tensors) const;
  // Copies each tensor from its owner to all.
  void broadcast(const std::vector<SharedTensor>& tensors) const;
  // Hands tensors of bytes on the device over (parallel/ranks.h).
  void send_recv(const std::vector<Transfer>& tensors) const;

 private:
  enum class Collective { all_reduce, broadcast };
  class Message;
  void exchange(std::vector<SharedTensor> tensors, Collective collective) const;
  template <class Work>
  void ended_with_lost(const Work& work) const;

  const Ranks& ranks_;
  std::unique_ptr<NcclGroup> gpus_;
  at::Tensor buffer_;  // bytes in main memory; undefined: none is needed
};

}  // namespace trainer
