// Tensors of which each belongs to one rank, and which the others fetch, a group at a time, when they need
// them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/parallel/ranks.h"
#include "trainer/parallel/tensor_exchange.h"

#include "memory/copy_stream.h"

namespace trainer {

// On its owner the tensor, contiguous; elsewhere undefined.
struct OwnedTensor {
  at::Tensor tensor;
  int64_t owner = 0;
};

// A thread of each rank tells the others which group its rank wants next, or that it wants no more, and
// learns the same of them. Then the owners send what is wanted, and so on. So a rank may fetch what it likes,
// in any order and as often as it likes, as long as all do so in the same section: a section of a rank begins
// with its first fetch() and ends with serve_until_all_end(). A rank that waits for another waits for its
// next fetch() or its serve_until_all_end().
class ShardFetcher {
 public:
  // Every rank names the same groups, with the same owners. The tensors may change between sections. `ranks`
  // and `exchange` must outlive it; `exchange` must not be used within sections.
  ShardFetcher(const Ranks& ranks, const TensorExchange& exchange, at::Device device,
               std::vector<std::vector<OwnedTensor>> groups);
  ~ShardFetcher();
  ShardFetcher(const ShardFetcher&) = delete;
  ShardFetcher& operator=(const ShardFetcher&) = delete;

  // Begins to fetch a group. `places`: one for each tensor of the group, of as many bytes; those of this
  // rank's own are not used. They are written when the device has reached `free`. The result is ready when
  // the values are on the device; get() throws LostRank.
  std::shared_future<void> fetch(size_t group, std::vector<at::Tensor> places, StreamMark free);
  // Ends this rank's section: gives others what they fetch until all have ended theirs. Throws LostRank.
  void serve_until_all_end();

 private:
  struct Request {
    size_t group;
    std::vector<at::Tensor> places;
    StreamMark free;
    std::promise<void> done;
  };

  void run();
  void take_turns();
  bool exchange_once(const Request* own);
  void fail(const std::exception_ptr& failure);

  const Ranks& ranks_;
  const TensorExchange& exchange_;
  at::Device device_;
  std::vector<std::vector<OwnedTensor>> groups_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Request> requests_;
  bool serving_ = false, ending_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace trainer
