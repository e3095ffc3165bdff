#include "parallel/heartbeat.h"

#include "trainer/parallel/ranks.h"

#include "base/threads.h"

namespace trainer {

Heartbeat::Heartbeat(const Connect& connect, std::chrono::milliseconds pause, std::atomic<int64_t>& beats)
    : pause_(pause), beats_(beats) {
  patience_.look = std::chrono::milliseconds(10);
  group_ = connect(patience_);
  start_threads(thread_, 1, [this](int64_t) { beat(); });
}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    patience_.given_up = true;
  }
  leaves_.notify_all();
}

void Heartbeat::beat() {
  try {
    while (!patience_.given_up) {
      group_->exchange("");
      ++beats_;
      std::unique_lock lock(mutex_);
      leaves_.wait_for(lock, pause_, [this] { return patience_.given_up.load(); });
    }
  } catch (const LostRank&) {  // one has ended, as its other connections say
  }
}

}  // namespace trainer
