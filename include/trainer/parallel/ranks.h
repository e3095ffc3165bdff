// The processes that train one model together ("ranks"), and what they tell each other. Small facts travel as
// notes, tensors as sums and copies. All ranks must make the same calls in the same order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/base/error.h"
#include "trainer/base/rank_place.h"

namespace trainer {

// Another rank has ended, or does not answer.
struct LostRank : Error {
  explicit LostRank(const std::string& message) : Error(ExitCode::device_fault, message) {
    set_family(ErrorCode::lost_rank);
  }
};

// The end of a rank.
struct RankEnd {
  int64_t rank = 0;
  int code = 0;  // its process's exit code
  std::string message;
  std::optional<ErrorCode> family = std::nullopt;
};

// Connections between the ranks. In `steps` nobody may be silent for longer than parallel.timeout. In
// `phases` work takes as long as it takes: loading, evaluations, the result. `checkpoints` belongs to the one
// thread that writes them, and is as patient. In both, a rank is lost when its process has stood still for
// parallel.timeout; until have_loaded(), also when it runs and has done nothing for so long. `weights`
// belongs to the one thread that fetches them (parallel/shard_fetcher.h); there, as in `steps`, nobody may be
// silent for longer than parallel.timeout.
enum class Channel { steps, phases, checkpoints, weights };

// A tensor that one rank sends to another: on `from` its values, on `to` a place of as many bytes. Others
// know only who takes part. Contiguous, in main memory.
struct Transfer {
  at::Tensor tensor;
  int64_t from = 0, to = 0;
};

class Ranks {
 public:
  Ranks();                     // one process alone
  static const Ranks& none();  // the same, for callers that know of no others
  // Meets the other processes of `place`. `timeout`: in seconds. Throws ConfigError when the port is in use,
  // and LostRank when one does not come in time, with its number.
  Ranks(const RankPlace& place, double timeout);
  // Counts as rank 0 of `count` and talks to nobody: for memory plans on `meta`.
  static Ranks planned(int64_t count);
  ~Ranks();
  Ranks(Ranks&&) noexcept;

  int64_t rank() const { return rank_; }
  int64_t count() const { return count_; }
  bool alone() const { return count_ == 1; }
  bool is_first() const { return rank_ == 0; }
  int64_t on_this_machine() const { return here_; }  // this one included
  double timeout() const { return timeout_; }        // parallel.timeout, in seconds

  // Gathers the notes of all ranks, in the order of the ranks. Throws LostRank.
  std::vector<std::string> all_gather(const std::string& note, Channel channel = Channel::steps) const;

  // Adds a tensor up over all ranks, in place and in its type. The sum has the same bits everywhere. With
  // `owner`, only that rank has the sum, and the tensor has any values elsewhere. The tensor must be
  // contiguous and in main memory. Throws LostRank.
  void all_reduce(const at::Tensor& tensor, std::optional<int64_t> owner = std::nullopt) const;
  // Copies the owner's values to all ranks, in place.
  void broadcast(int64_t owner, const at::Tensor& tensor) const;
  // Sends and receives tensors, all at once, on Channel::weights. Every rank names the same ones in the same
  // order.
  void send_recv(const std::vector<Transfer>& tensors) const;
  // Returns how many bytes of tensors this rank has given to others: those of all_reduce(), broadcast() and
  // send_recv(), and what others, as between GPUs, have added by count_given().
  int64_t bytes_given() const;
  void count_given(int64_t bytes) const;

  // From now on nobody asks whether a process that others wait for does anything: evaluations may wait for a
  // GPU, and results for a disk. To be called by all.
  void have_loaded() const noexcept;

  // Ends all waiting for a rank that was lost elsewhere, as between GPUs: all_gather() in `phases` and
  // `checkpoints`, of any thread, throws LostRank. In `steps` it ends after parallel.timeout anyway.
  void give_up() const noexcept;

  // Leave a message for those who will find this rank lost, and read the first such message of another rank.
  // They never throw: when rank 0 is gone, so are the messages. notify_end() also closes the connections, so
  // that the others notice at once.
  void notify_end(const RankEnd& end) const noexcept;
  std::optional<RankEnd> first_end() const noexcept;
  std::optional<RankEnd> end_of(int64_t rank) const noexcept;
  // The last call of a rank that has left a message. Rank 0, which holds those of all, waits here at most so
  // long until the others have made it, but for one that was lost without a message.
  void wait_for_ends(double seconds) const noexcept;

 private:
  struct Group;
  Ranks(int64_t rank, int64_t count) : rank_(rank), count_(count) {}

  int64_t rank_ = 0, count_ = 1, here_ = 1;
  double timeout_ = 0;
  std::shared_ptr<Group> group_;  // null: alone or planned
};

// Does `work` on every rank. When it failed on some, all throw the error of the first that failed: its exit
// code, family and text, with "rank R: " in front unless it is rank 0's. One rank alone only does the work,
// and throws what it threw. If `work` returns a note, all get the notes of all, in the order of the ranks.
template <class Work>
auto run_on_all_ranks(const Ranks& ranks, const Work& work, Channel channel = Channel::steps);

// Returns the sums of what each rank gives, added in the order of the ranks, so that all have the same bits.
std::vector<double> all_reduce(const Ranks& ranks, const std::vector<double>& values,
                               Channel channel = Channel::steps);

// Numbers as a note, and back, bit by bit.
std::string note_of(const std::vector<double>& values);
std::vector<double> values_in(const std::string& note);

// run_on_all_ranks() for several ranks.
std::vector<std::string> gather_outcomes(const Ranks& ranks, const std::function<std::string()>& work,
                                         Channel channel);

template <class Work>
auto run_on_all_ranks(const Ranks& ranks, const Work& work, Channel channel) {
  if constexpr (std::is_void_v<std::invoke_result_t<Work>>) {
    if (ranks.alone()) return work();
    gather_outcomes(
        ranks,
        [&] {
          work();
          return std::string();
        },
        channel);
  } else {
    return ranks.alone() ? std::vector<std::string>{work()} : gather_outcomes(ranks, work, channel);
  }
}

// Divides things among ranks, so that each has about the same amount. Returns the rank of each thing: the
// largest first, each to the rank that has least so far (Graham 1969). It depends on nothing but the
// arguments. With `costs` of 0 or more, no rank has more than 4/3 of the best. `load`: what each rank has
// already; empty: nothing.
std::vector<int64_t> divide_among(int64_t ranks, const std::vector<int64_t>& costs,
                                  std::vector<int64_t> load = {});

}  // namespace trainer
