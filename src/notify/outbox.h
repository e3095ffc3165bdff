// Events that wait to be delivered, and the thread that delivers them one after the other. Whoever puts one
// in never waits for that.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "notify/message_format.h"

namespace trainer {

struct Delivery {
  enum class Outcome {
    sent,
    later,  // the same may succeed in a while
    never
  };
  Outcome outcome = Outcome::sent;
  std::string problem;      // unless it was sent
  double wait_seconds = 0;  // for `later`: not before; 0: as the outbox decides
};

// Delivers an event, within some seconds. `left_out`: events before it that were given up. Ends soon, with
// any outcome, when `abort` becomes true. Is called by the outbox's thread only.
using Deliver = std::function<Delivery(const Event& event, int64_t left_out, const std::atomic<bool>& abort)>;

struct OutboxLimits {
  size_t capacity = 20;  // events that wait
  // Seconds until the first repetition, and the most between two; the time doubles.
  double first_wait = 1, longest_wait = 60;
};

class Outbox {
 public:
  // `name` begins its warnings: "notify.webhook".
  Outbox(std::string name, Deliver deliver, const OutboxLimits& limits = {});
  // Delivers nothing more.
  ~Outbox();
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  // Returns at once. If too many events wait, one is left out: the oldest of kind progress, else the oldest
  // warning, else the oldest.
  void put(Event event);

  // Nothing is put in from now on, and what waits has this long to be delivered; events of kind progress are
  // left out. Returns at once.
  void close(double seconds);
  // Closes, unless it is closed, and waits until everything is delivered or the time is up; a second more if
  // a delivery does not end when it is aborted. Logs a warning if something was not delivered.
  void finish(double seconds);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Returns whether this is the thread of an outbox: what it logs is about messages, and is no message itself.
bool is_outbox_thread();

}  // namespace trainer
