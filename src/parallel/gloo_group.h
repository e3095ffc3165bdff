// Some ranks connected by Gloo, as LibTorch contains it (torch.distributed's backend for CPUs).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Store;
}

namespace trainer {

struct Transfer;

// Conditions on which all_gather() stops waiting before its timeout.
struct Patience {
  std::atomic<bool> given_up{false};
  std::atomic<int64_t> beats{0};          // they rise while all ranks run (Heartbeat)
  std::atomic<int64_t> hanging_rank{-1};  // one that runs and does nothing; -1: none
  double silence = 0;  // after so many seconds without a beat a rank is lost; 0: beats do not matter
  std::chrono::microseconds look{200};  // between two looks at these
};

class GlooGroup {
 public:
  // Connects the ranks, and throws LostRank if one does not come within `timeout`. `address`: of this
  // machine, as others reach it, or "" if GLOO_SOCKET_IFNAME names the interface. Later calls fail after
  // `timeout`, too. With a `patience`, which must outlive the group, all_gather() takes any time until that
  // ends instead.
  GlooGroup(const c10::intrusive_ptr<c10d::Store>& store, const std::string& name, int64_t rank,
            int64_t count, const std::string& address, std::chrono::milliseconds timeout,
            const Patience* patience);
  ~GlooGroup();

  // They throw LostRank.
  std::vector<std::string> all_gather(const std::string& note) const;
  void all_reduce(const at::Tensor& tensor) const;
  void reduce(const at::Tensor& tensor, int64_t owner) const;
  void broadcast(int64_t owner, const at::Tensor& tensor) const;
  void send_recv(const std::vector<Transfer>& tensors) const;

 private:
  struct Gloo;
  std::unique_ptr<Gloo> gloo_;
  int64_t rank_, count_;
};

// A thread that exchanges short notes with the other ranks again and again. A rank that is stopped, or
// whose machine or network is gone, takes no part, and the beats stop; slow work of its other threads does
// not stop them.
class Heartbeat {
 public:
  using Connect = std::function<std::unique_ptr<GlooGroup>(const Patience&)>;
  using Say = std::function<std::string()>;
  using Hear = std::function<void(const std::vector<std::string>&)>;

  // `connect` connects the ranks, and may throw. In each exchange `say` gives the note of this rank, and
  // `hear` gets those of all, until a rank has ended; never when the system gives no thread for it.
  Heartbeat(const Connect& connect, std::chrono::milliseconds pause, Say say, Hear hear);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  bool has_begun() const { return !thread_.empty(); }

 private:
  void beat();

  Patience patience_;  // given up: this rank leaves
  std::unique_ptr<GlooGroup> group_;
  std::chrono::milliseconds pause_;
  Say say_;
  Hear hear_;
  std::mutex mutex_;
  std::condition_variable leaves_;
  std::vector<std::jthread> thread_;  // at most one
};

// Returns the bytes a second that each of two ranks sends while they add tensors of 16 MB up by Gloo, as
// `--ranks` does, and GPUs without NCCL. The ranks are threads of this process. It takes some 0.1 s. Throws
// LostRank when they cannot connect.
double measure_sum_rate();

}  // namespace trainer
