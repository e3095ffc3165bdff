#include "device/interruptible_sleep.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

namespace trainer {
namespace {

// The signal handler writes into it, on whichever thread it runs; the sleeping thread polls it.
std::array<int, 2> signalled{-1, -1};

void on_signal(int) {
  const char byte = 0;
  if (::write(signalled[1], &byte, 1) < 0) return;  // full: the sleeping thread already knows
}

// Installs the handler while it lives, except for a signal that is ignored (nohup).
class Handler {
 public:
  explicit Handler(int signal) : signal_(signal) {
    struct sigaction ours {};
    ours.sa_handler = on_signal;
    ::sigaction(signal_, nullptr, &before_);
    installed_ = before_.sa_handler != SIG_IGN && ::sigaction(signal_, &ours, nullptr) == 0;
  }
  ~Handler() {
    if (installed_) ::sigaction(signal_, &before_, nullptr);
  }
  Handler(const Handler&) = delete;
  Handler& operator=(const Handler&) = delete;

 private:
  int signal_;
  bool installed_ = false;
  struct sigaction before_ {};
};

}  // namespace

bool interruptible_sleep(double seconds) {
  using Clock = std::chrono::steady_clock;
  if (signalled[0] < 0 && ::pipe2(signalled.data(), O_CLOEXEC | O_NONBLOCK) != 0) return false;
  const Handler interrupt(SIGINT), terminate(SIGTERM);
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    const double left = std::chrono::duration<double>(end - Clock::now()).count();
    pollfd pipe{signalled[0], POLLIN, 0};
    const int ready = ::poll(&pipe, 1, static_cast<int>(std::ceil(std::clamp(left, 0.0, 3600.0) * 1000)));
    char byte = 0;
    if (ready > 0 && ::read(signalled[0], &byte, 1) == 1) return false;
    if (left <= 0) return true;
  }
}

}  // namespace trainer
