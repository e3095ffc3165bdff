#include "notify/outbox.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/progress.h"

namespace trainer {
namespace {

using Outcome = Delivery::Outcome;
using Texts = std::vector<std::string>;

Event event_of(const std::string& kind, const std::string& text) {
  Event made;
  made.kind = kind;
  made.text = text;
  return made;
}

// A server that answers when it is told to, and keeps what arrived.
class Server {
 public:
  Deliver deliver() {
    return [this](const Event& event, int64_t left_out, const std::atomic<bool>& abort) {
      std::unique_lock lock(mutex_);
      attempts_++;
      changed_.notify_all();
      while (!open_ && !abort) changed_.wait_for(lock, std::chrono::milliseconds(5));
      if (abort) return Delivery{Outcome::later, "aborted"};
      if (failures_ > 0) {
        failures_--;
        return Delivery{Outcome::later, "no answer", asked_wait_};
      }
      arrived_.push_back(event.text);
      left_out_ += left_out;
      return refuses_ ? Delivery{Outcome::never, "refused"} : Delivery{};
    };
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait_for_attempt() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return attempts_ > 0; });
  }
  Texts arrived() {
    const std::lock_guard lock(mutex_);
    return arrived_;
  }

  int attempts_ = 0, failures_ = 0;
  double asked_wait_ = 0;
  int64_t left_out_ = 0;
  bool open_ = true, refuses_ = false;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Texts arrived_;
};

constexpr OutboxLimits kSmall{.capacity = 3, .first_wait = 0.02, .longest_wait = 0.05};

TEST(Outbox, DeliversEventsInTheirOrder) {
  Server server;
  Outbox outbox("test", server.deliver());
  for (const char* text : {"a", "b", "c"}) outbox.put(event_of("best", text));
  outbox.finish(10);
  EXPECT_EQ(server.arrived(), (Texts{"a", "b", "c"}));
  EXPECT_EQ(server.left_out_, 0);
}

TEST(Outbox, AFullOneLeavesOutProgressFirstThenWarningsAndSaysHowMany) {
  Server server;
  server.open_ = false;
  Outbox outbox("test", server.deliver(), kSmall);
  outbox.put(event_of("start", "start"));
  server.wait_for_attempt();  // "start" does not wait any more
  outbox.put(event_of("warning", "warning"));
  outbox.put(event_of("progress", "old progress"));
  outbox.put(event_of("best", "best 1"));
  outbox.put(event_of("best", "best 2"));  // instead of the progress
  outbox.put(event_of("best", "best 3"));  // instead of the warning
  outbox.put(event_of("best", "best 4"));  // instead of the oldest
  server.open();
  outbox.finish(10);
  EXPECT_EQ(server.arrived(), (Texts{"start", "best 2", "best 3", "best 4"}));
  EXPECT_EQ(server.left_out_, 3);
}

TEST(Outbox, TriesAgainUntilTheServerAnswers) {
  Server server;
  server.failures_ = 3;
  Outbox outbox("test", server.deliver(), kSmall);
  outbox.put(event_of("best", "a"));
  outbox.put(event_of("best", "b"));
  while (server.arrived().size() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(server.arrived(), (Texts{"a", "b"}));
  EXPECT_EQ(server.attempts_, 5);
}

TEST(Outbox, WaitsAsLongAsTheServerAsksFor) {
  Server server;
  server.failures_ = 1;
  server.asked_wait_ = 0.5;
  const auto begin = std::chrono::steady_clock::now();
  Outbox outbox("test", server.deliver(), kSmall);
  outbox.put(event_of("best", "a"));
  while (server.arrived().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_GE(seconds_since(begin), 0.5);
}

TEST(Outbox, DoesNotRepeatWhatIsRefused) {
  Server server;
  server.refuses_ = true;
  Outbox outbox("test", server.deliver(), kSmall);
  outbox.put(event_of("best", "a"));
  outbox.put(event_of("best", "b"));
  outbox.finish(10);
  EXPECT_EQ(server.attempts_, 2);
}

TEST(Outbox, AtTheEndTheLastEventGetsQuickAttemptsAndProgressNone) {
  Server server;
  server.failures_ = 2;
  Outbox outbox("test", server.deliver(), {.capacity = 9, .first_wait = 0.05, .longest_wait = 1000});
  outbox.put(event_of("progress", "progress"));
  outbox.put(event_of("finished", "finished"));
  outbox.finish(20);
  EXPECT_EQ(server.arrived(), Texts{"finished"});
  EXPECT_EQ(server.left_out_, 1);
}

TEST(Outbox, AServerThatNeverAnswersIsLeftInTime) {
  Server server;
  server.open_ = false;
  Outbox outbox("test", server.deliver(), kSmall);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 1000; i++) outbox.put(event_of("best", "text"));
  EXPECT_LT(seconds_since(begin), 1);  // whoever puts events in does not wait
  outbox.finish(0.3);
  EXPECT_GE(seconds_since(begin), 0.3);
  EXPECT_LT(seconds_since(begin), 2);
  EXPECT_EQ(server.arrived(), Texts{});
}

TEST(Outbox, ADeliveryThatDoesNotEndIsAbandoned) {
  // Shared with the thread, which outlives the test.
  const auto stuck = std::make_shared<std::atomic<bool>>(true);
  const auto left = std::make_shared<std::atomic<bool>>(false);
  const auto begin = std::chrono::steady_clock::now();
  {
    Outbox outbox("test", [stuck, left](const Event&, int64_t, const std::atomic<bool>&) {
      while (*stuck) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      *left = true;
      return Delivery{};
    });
    outbox.put(event_of("finished", "text"));
    outbox.finish(0.2);
  }
  EXPECT_LT(seconds_since(begin), 4);
  *stuck = false;
  while (!*left) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

TEST(Outbox, ADeliveryThatThrowsIsNoEndOfTheProgram) {
  Outbox outbox("test",
                [](const Event&, int64_t, const std::atomic<bool>&) -> Delivery { throw std::bad_alloc(); });
  outbox.put(event_of("best", "a"));
  outbox.finish(10);
}

}  // namespace
}  // namespace trainer
