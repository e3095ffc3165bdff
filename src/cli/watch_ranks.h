// The processes of a run, seen from the one that has started them: hands signals on, ends with them.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace trainer::cli {

class RankWatch {
 public:
  // From here on the signals that stop or save a run wait for until_all_have_ended(), in this process and in
  // those that it starts. `patience`: seconds that ranks get to save and to end after they were told to stop.
  // `noticing`: seconds that they get before that to notice themselves that another one has failed.
  explicit RankWatch(double patience, double noticing = 20);
  // Ends all that still run.
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  // The process group of the ranks; 0 before the first was added.
  pid_t group() const { return ranks_.empty() ? 0 : ranks_.front().process; }
  void add(pid_t process);

  // Returns if all ended with 0. Otherwise throws Error with the exit code of the run, or ends this process
  // by the signal that was handed on and has ended them.
  void until_all_have_ended();
  void kill_all();

 private:
  using Clock = std::chrono::steady_clock;
  struct Rank {
    pid_t process;
    std::optional<int> status;  // from waitpid, once it has ended
    bool was_told = false;      // it ended after the watch had told it to
  };

  bool has_running() const;
  std::string running() const;
  void send(int number);
  void answer(int number);
  void ask_to_save();
  void stop_with_them();
  void note_ended();
  void press();
  std::optional<Clock::duration> time_to_press() const;
  void throw_outcome() const;

  std::vector<Rank> ranks_;
  Clock::duration patience_, noticing_;
  sigset_t watched_{}, before_{};
  std::optional<size_t> first_failed_;
  std::optional<Clock::time_point> stop_at_,
      kill_at_;  // when ranks that still run are told to stop, are killed
  bool told_ = false;
  int interrupts_ = 0;
};

}  // namespace trainer::cli
