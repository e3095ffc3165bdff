// Adds up many tensors over the ranks, or copies them between ranks, in few large messages.
#pragma once

#include <cstdint>
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

class TensorExchange {
 public:
  static constexpr int64_t kMessageBytes = 16 << 20;

  // Allocates room for one message, and nothing for one rank alone. `bytes`: of all tensors that are
  // exchanged. `ranks` must outlive it.
  TensorExchange(const Ranks& ranks, at::Device device, int64_t bytes);

  // Replaces each tensor by its sum over the ranks, in its own type: at its owner, whose sum then has the
  // same bits as with every other rank, or everywhere. What other ranks keep has any values. Throws LostRank.
  // Allocates nothing for contiguous tensors.
  void add_up(const std::vector<SharedTensor>& tensors) const;
  // Copies each tensor from its owner to all.
  void copy(const std::vector<SharedTensor>& tensors) const;

  void move_to(at::Device device);

 private:
  enum class What { sum, copy };
  class Message;
  void exchange(std::vector<SharedTensor> tensors, What what) const;

  const Ranks& ranks_;
  int64_t bytes_;
  at::Tensor buffer_;  // bytes in main memory; undefined: alone
};

}  // namespace trainer
