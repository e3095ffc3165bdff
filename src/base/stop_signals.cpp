#include "trainer/base/stop_signals.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <unistd.h>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/rank_place.h"

#include "base/live_lines.h"

namespace trainer {
namespace {

// Handlers run on any thread, between any two instructions; they touch only these variables.
std::atomic<bool> held{false}, save_asked{false}, silent{false}, has_launcher{false};
std::atomic<int> stop_number{0}, interrupts{0};
constexpr int kHandled[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

const char* name_of(int number) {
  switch (number) {
    case SIGTERM:
      return "SIGTERM";
    case SIGINT:
      return "SIGINT";
    case SIGHUP:
      return "SIGHUP";
    default:
      return "";
  }
}

// Only write() may be called in a handler; the run adds a log line later.
void say(std::initializer_list<const char*> parts) {
  if (silent) return;
  erase_live_lines_in_handler();
  for (const char* part : parts) {
    if (::write(STDERR_FILENO, part, std::strlen(part)) < 0) return;  // nobody listens
  }
}

void say_signal(int number, const char* text) { say({"\ntrainer: ", name_of(number), ": ", text, "\n"}); }

// Who pressed Ctrl-C knows it by that name.
void say_stopping(int number) {
  if (number == SIGINT)
    say({"\ntrainer: Stopping after this step; Ctrl-C again quits now\n"});
  else
    say_signal(number, "stopping after this step");
}

// Ends as if the signal had no handler, so that a shell script sees Ctrl-C and ends, too.
[[noreturn]] void end_by(int number) {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  ::sigaction(number, &action, nullptr);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  ::kill(::getpid(), number);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  ::_exit(128 + number);  // the first process of a container does not die of signals
}

// Whoever signals all processes of a job reaches a rank and its launcher, which hands the signal on: then it
// comes twice without being asked twice.
bool counts(const siginfo_t* info) { return !has_launcher || info->si_pid == ::getppid(); }

void on_stop(int number, siginfo_t* info, void*) {
  const int error = errno;
  if (number == SIGINT && counts(info) && interrupts.fetch_add(1) > 0) {
    say({"\ntrainer: Stopped at once; what was saved before stays\n"});
    end_by(number);
  }
  if (!held) {
    say_signal(number, "ended before a step was made; the same command starts again");
    ::_exit(static_cast<int>(ExitCode::interrupted));
  }
  int none = 0;
  if (stop_number.compare_exchange_strong(none, number)) say_stopping(number);
  errno = error;
}

void on_save(int, siginfo_t*, void*) { save_asked = true; }

void forget() {
  held = false;
  save_asked = false;
  stop_number = 0;
  interrupts = 0;
}

// A launcher may have blocked them, so that those that came early wait for the handlers.
void unblock_stop_signals() {
  sigset_t all;
  ::sigemptyset(&all);
  for (const int number : kHandled) ::sigaddset(&all, number);
  ::pthread_sigmask(SIG_UNBLOCK, &all, nullptr);
}

}  // namespace

StopSignals::StopSignals() {
  forget();
  silent = !log::speaker().empty();  // every rank gets the signal; rank 0 says it
  has_launcher = is_started_by_trainer();
  for (const int number : kHandled) {
    Before before{number, {}};
    ::sigaction(number, nullptr, &before.action);
    if (before.action.sa_handler == SIG_IGN && number != SIGUSR1) continue;
    struct sigaction ours {};
    ours.sa_sigaction = number == SIGUSR1 ? on_save : on_stop;
    ours.sa_flags = SA_SIGINFO | SA_RESTART;  // interrupted reads and writes continue
    if (::sigaction(number, &ours, nullptr) == 0) before_.push_back(before);
  }
  unblock_stop_signals();
}

StopSignals::~StopSignals() {
  for (const Before& before : before_) ::sigaction(before.number, &before.action, nullptr);
  forget();  // a later run of this process must not stop for a signal that an earlier one answered
}

void hold_stop_signals() { held = true; }

std::string stop_signal() { return name_of(stop_number); }

bool take_save_request() { return save_asked.exchange(false); }

}  // namespace trainer
