#include "cli/watch_ranks.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <sys/wait.h>
#include <unistd.h>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "base/ending.h"

namespace trainer::cli {
namespace {

constexpr int kInterrupted = static_cast<int>(ExitCode::interrupted);

std::chrono::steady_clock::duration of_seconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(seconds));
}

bool was_killed(int status) { return WIFSIGNALED(status); }
bool is_well(int status) { return !was_killed(status) && WEXITSTATUS(status) == 0; }
bool has_failed(int status) {
  return was_killed(status) || (!is_well(status) && WEXITSTATUS(status) != kInterrupted);
}

// An exit code that says what was wrong.
bool is_documented(int code) {
  return code > kUnexpectedError && code <= static_cast<int>(ExitCode::device_fault);
}

std::string killed_text(size_t rank, int number) {
  const std::string text =
      concat("rank ", rank, " was killed by signal ", number, " (", ::strsignal(number), ")");
  if (number == SIGKILL)
    return concat(text,
                  "; if nobody has sent it, the machine or the container was out of memory (dmesg and "
                  "memory.events of its cgroup tell). `trainer status` of its output_dir says how to go on");
  const bool is_fault =
      number == SIGSEGV || number == SIGBUS || number == SIGABRT || number == SIGFPE || number == SIGILL;
  return is_fault ? concat(text, ": an internal error; please report it with what it has said before") : text;
}

// As if the signal had no handler here, so that a shell script sees Ctrl-C and ends, too.
[[noreturn]] void end_by_signal(int number) {
  ::signal(number, SIG_DFL);
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, number);
  ::kill(::getpid(), number);
  ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
  ::_exit(128 + number);  // the first process of a container does not die of signals
}

}  // namespace

RankWatch::RankWatch(double patience, double noticing)
    : patience_(of_seconds(patience)), noticing_(of_seconds(noticing)) {
  ::signal(SIGCHLD, SIG_DFL);  // if it is ignored, waitpid() reports no status
  ::sigemptyset(&watched_);
  for (const int number : {SIGCHLD, SIGTSTP, SIGUSR1}) ::sigaddset(&watched_, number);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now {};
    ::sigaction(number, nullptr, &now);
    if (now.sa_handler != SIG_IGN) ::sigaddset(&watched_, number);  // stays ignored (nohup)
  }
  ::sigprocmask(SIG_BLOCK, &watched_, &before_);
}

RankWatch::~RankWatch() {
  kill_all();
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

void RankWatch::add(pid_t process) {
  ranks_.push_back({process, std::nullopt});
  ::setpgid(process, group());  // it does so itself, too: whoever comes first
  log::debug(concat("rank ", ranks_.size() - 1, " is process ", process));
}

bool RankWatch::has_running() const {
  return std::ranges::any_of(ranks_, [](const Rank& rank) { return !rank.status; });
}

// "rank 0 and rank 3"
std::string RankWatch::running() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < ranks_.size(); i++) {
    if (!ranks_[i].status) names.push_back(concat("rank ", i));
  }
  return join(names);
}

void RankWatch::send(int number) {
  for (const Rank& rank : ranks_) {
    if (!rank.status) ::kill(rank.process, number);
  }
}

void RankWatch::kill_all() {
  send(SIGKILL);
  for (Rank& rank : ranks_) {
    int status = 0;
    if (!rank.status && ::waitpid(rank.process, &status, 0) == rank.process) rank.status = status;
  }
}

// Ctrl-Z stops the ranks, too; `fg` or `bg` continues them.
void RankWatch::stop_with_them() {
  ::kill(-group(), SIGSTOP);
  ::raise(SIGSTOP);
  ::kill(-group(), SIGCONT);
}

// One of them is enough, and they save together. Asked at different steps, they would save at each.
void RankWatch::ask_to_save() {
  const auto one = std::ranges::find_if(ranks_, [](const Rank& rank) { return !rank.status; });
  if (one != ranks_.end()) ::kill(one->process, SIGUSR1);
}

void RankWatch::answer(int number) {
  if (number == SIGTSTP) return stop_with_them();
  if (number == SIGINT && ++interrupts_ == 2) kill_at_ = Clock::now() + noticing_;
  number == SIGUSR1 ? ask_to_save() : send(number);
}

void RankWatch::note_ended() {
  for (size_t i = 0; i < ranks_.size(); i++) {
    Rank& rank = ranks_[i];
    int status = 0;
    if (rank.status || ::waitpid(rank.process, &status, WNOHANG) != rank.process) continue;
    rank.status = status;
    rank.was_told = told_;
    if (told_ || is_well(status)) continue;
    // The others of a rank that was asked to stop know of it, unless they were still starting.
    const bool failed = has_failed(status);
    const Clock::time_point until = Clock::now() + (failed ? noticing_ : noticing_ / 4);
    stop_at_ = std::min(stop_at_.value_or(until), until);
    if (failed && !first_failed_) first_failed_ = i;
  }
}

std::optional<RankWatch::Clock::duration> RankWatch::time_to_press() const {
  if (!stop_at_ && !kill_at_) return std::nullopt;
  const Clock::time_point next =
      std::min(stop_at_.value_or(Clock::time_point::max()), kill_at_.value_or(Clock::time_point::max()));
  return std::max(next - Clock::now(), Clock::duration::zero());
}

// Ends those that do not end by themselves.
void RankWatch::press() {
  const Clock::time_point now = Clock::now();
  if (!has_running()) return;
  if (stop_at_ && now >= *stop_at_) {
    if (first_failed_)
      log::warning(
          concat("rank ", *first_failed_, " has failed and ", running(), " still runs: told to stop"));
    told_ = true;
    send(SIGTERM);
    stop_at_.reset();
    if (first_failed_ && !kill_at_) kill_at_ = now + patience_;
  }
  if (kill_at_ && now >= *kill_at_) {
    log::warning(concat(running(), " does not end: killed"));
    told_ = true;
    send(SIGKILL);
    kill_at_.reset();
  }
}

void RankWatch::until_all_have_ended() {
  while (has_running()) {
    int number = 0;
    if (const auto time = time_to_press()) {
      const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(*time).count();
      const timespec wait{static_cast<time_t>(nanoseconds / 1'000'000'000), nanoseconds % 1'000'000'000};
      number = ::sigtimedwait(&watched_, nullptr, &wait);
    } else {
      number = ::sigwaitinfo(&watched_, nullptr);
    }
    if (number > 0 && number != SIGCHLD) answer(number);
    note_ended();
    press();
  }
  throw_outcome();
}

void RankWatch::throw_outcome() const {
  const auto killed = [](const Rank& rank) { return was_killed(*rank.status); };
  if (interrupts_ > 1 && std::ranges::any_of(ranks_, killed)) end_by_signal(SIGINT);
  // The other ranks only know that they have lost the rank that was killed.
  const auto cause =
      std::ranges::find_if(ranks_, [&](const Rank& rank) { return killed(rank) && !rank.was_told; });
  if (cause != ranks_.end()) {
    const int number = WTERMSIG(*cause->status);
    throw Error(static_cast<ExitCode>(128 + number),
                killed_text(static_cast<size_t>(cause - ranks_.begin()), number));
  }
  if (first_failed_) {
    int code = WEXITSTATUS(*ranks_[*first_failed_].status);
    const int of_first = *ranks_.front().status;
    if (!is_documented(code) && !was_killed(of_first) && is_documented(WEXITSTATUS(of_first)))
      code = WEXITSTATUS(of_first);
    throw Error(static_cast<ExitCode>(code), "");  // the ranks have said why
  }
  const auto is_well_ended = [](const Rank& rank) { return is_well(*rank.status); };
  if (!std::ranges::all_of(ranks_, is_well_ended)) throw Error(ExitCode::interrupted, "");
}

}  // namespace trainer::cli
