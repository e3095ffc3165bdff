#include "notify/outbox.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <exception>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "base/memory_room.h"

namespace trainer {
namespace {

using OutboxClock = std::chrono::steady_clock;
using Outcome = Delivery::Outcome;

thread_local bool delivers = false;

std::chrono::duration<double> outbox_seconds(double count) { return std::chrono::duration<double>(count); }

}  // namespace

// Outlives the outbox if a delivery does not end: the thread keeps it.
struct Outbox::State {
  State(std::string name, Deliver deliver, const OutboxLimits& limits)
      : name(std::move(name)), deliver(std::move(deliver)), limits(limits) {}

  const std::string name;
  const Deliver deliver;
  const OutboxLimits limits;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Event> waiting;
  int64_t left_out = 0;     // and not told yet
  int64_t undelivered = 0;  // refused
  bool closing = false, ended = false;
  OutboxClock::time_point deadline = OutboxClock::time_point::max();
  std::atomic<bool> abort = false, abandoned = false;
  std::thread thread;
  // For the thread alone.
  bool is_failing = false;
  std::set<std::string> warned;

  void leave_one_out() {
    const auto oldest = [&](const char* kind) {
      return std::ranges::find_if(waiting, [&](const Event& event) { return event.kind == kind; });
    };
    auto event = oldest("progress");
    if (event == waiting.end()) event = oldest("warning");
    if (event == waiting.end()) event = waiting.begin();
    waiting.erase(event);
    left_out++;
  }

  void work() {
    std::unique_lock lock(mutex);
    double wait = limits.first_wait;
    while (!abort) {
      changed.wait(lock, [&] { return closing || !waiting.empty(); });
      if (waiting.empty() || abort) break;
      Event event = std::move(waiting.front());
      waiting.pop_front();
      const int64_t told = left_out;
      lock.unlock();
      const Delivery delivery = attempt(event, told);
      lock.lock();
      if (delivery.outcome == Outcome::later) {
        if (!pause(lock, std::max(wait, delivery.wait_seconds), event)) break;
        wait = std::min(2 * wait, limits.longest_wait);
        continue;
      }
      wait = limits.first_wait;
      delivery.outcome == Outcome::sent ? left_out -= told : undelivered++;
    }
    ended = true;
    changed.notify_all();
  }

  Delivery attempt(const Event& event, int64_t told) {
    Delivery delivery;
    try {
      delivery = deliver(event, told, abort);
    } catch (const std::exception& error) {  // no memory, for example
      delivery = {Outcome::never, error.what()};
    }
    if (!abandoned && !abort) report(delivery);
    return delivery;
  }

  void report(const Delivery& delivery) {
    if (delivery.outcome == Outcome::sent) {
      if (std::exchange(is_failing, false)) log::info(concat(name, ": messages arrive again"));
    } else if (delivery.outcome == Outcome::later) {
      if (!std::exchange(is_failing, true))
        log::warning(
            concat(name, ": ", delivery.problem, "; the run continues, and the message is sent again later"));
    } else if (warned.insert(delivery.problem).second) {
      log::warning(concat(name, ": ", delivery.problem, "; the run continues without this message"));
    }
  }

  // Puts the event back and waits. When the outbox is closing, the last events get a few quick attempts more.
  // Returns whether there is time for one.
  bool pause(std::unique_lock<std::mutex>& lock, double seconds, Event& event) {
    const bool was_closing = closing;
    if (was_closing && event.kind == "progress") {
      left_out++;
      return true;
    }
    waiting.push_front(std::move(event));
    if (waiting.size() > limits.capacity) leave_one_out();
    if (!was_closing) {
      changed.wait_for(lock, outbox_seconds(seconds), [&] { return closing; });
      return true;
    }
    const auto until = OutboxClock::now() + std::chrono::duration_cast<OutboxClock::duration>(
                                                outbox_seconds(std::min(seconds, limits.first_wait)));
    if (until >= deadline) return false;
    changed.wait_until(lock, until, [&] { return abort.load(); });
    return true;
  }
};

Outbox::Outbox(std::string name, Deliver deliver, const OutboxLimits& limits)
    : state_(std::make_shared<State>(std::move(name), std::move(deliver), limits)) {
  try {
    require_room_for_threads(1, "messages");
    state_->thread = std::thread([state = state_] {
      sigset_t all;
      sigfillset(&all);
      ::pthread_sigmask(SIG_SETMASK, &all, nullptr);  // signals are for the run
      delivers = true;
      state->work();
    });
  } catch (const std::exception&) {
    state_->ended = true;
    log::warning(concat(state_->name,
                        ": the system gives no thread for messages (see ulimit -u and -v); the run "
                        "continues without them"));
  }
}

Outbox::~Outbox() {
  if (state_->thread.joinable()) finish(0);
}

void Outbox::put(Event event) {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->ended || state_->closing) return;
    if (state_->waiting.size() >= state_->limits.capacity) state_->leave_one_out();
    state_->waiting.push_back(std::move(event));
  }
  state_->changed.notify_all();
}

void Outbox::close(double seconds) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  if (std::exchange(state.closing, true)) return;
  state.deadline =
      OutboxClock::now() + std::chrono::duration_cast<OutboxClock::duration>(outbox_seconds(seconds));
  state.left_out += static_cast<int64_t>(
      std::erase_if(state.waiting, [](const Event& event) { return event.kind == "progress"; }));
  state.changed.notify_all();
}

void Outbox::finish(double seconds) {
  State& state = *state_;
  if (!state.thread.joinable()) return;
  close(seconds);
  std::unique_lock lock(state.mutex);
  const auto has_ended = [&] { return state.ended; };
  if (!state.changed.wait_until(lock, state.deadline, has_ended)) {
    state.abort = true;
    state.changed.notify_all();
    state.changed.wait_for(lock, outbox_seconds(1.5), has_ended);
  }
  const bool ended = state.ended;
  const auto lost =
      static_cast<int64_t>(state.waiting.size()) + state.left_out + state.undelivered + (ended ? 0 : 1);
  lock.unlock();
  if (ended) {
    state.thread.join();
  } else {
    state.abandoned = true;
    state.thread.detach();
  }
  if (lost > 0 && seconds > 0)
    log::warning(concat(state.name, ": ", lost, lost == 1 ? " message was" : " messages were", " not sent"));
}

bool is_outbox_thread() { return delivers; }

}  // namespace trainer
