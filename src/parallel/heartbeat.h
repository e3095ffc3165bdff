// Whether all ranks run, for those who wait for one without knowing how long its work takes.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "parallel/gloo_group.h"

namespace trainer {

// A thread that exchanges an empty note with the other ranks again and again. A rank that is stopped, or
// whose machine or network is gone, takes no part, and the beats stop; slow work of its other threads does
// not stop them.
class Heartbeat {
 public:
  using Connect = std::function<std::unique_ptr<GlooGroup>(const Patience&)>;

  // `connect` connects the ranks, and may throw. `beats` rises with each exchange, until a rank has ended;
  // it stays 0 when the system gives no thread for it.
  Heartbeat(const Connect& connect, std::chrono::milliseconds pause, std::atomic<int64_t>& beats);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  void beat();

  Patience patience_;  // given up: this rank leaves
  std::unique_ptr<GlooGroup> group_;
  std::chrono::milliseconds pause_;
  std::atomic<int64_t>& beats_;
  std::mutex mutex_;
  std::condition_variable leaves_;
  std::vector<std::jthread> thread_;  // at most one
};

}  // namespace trainer
