#include "run/end_with_others.h"

#include <exception>
#include <optional>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/ending.h"
#include "base/first_line.h"

namespace trainer {
namespace {

// Rank 0 holds the words of all, so it leaves last.
constexpr double kSecondsForOthers = 10;

// Whether rank 0 shows the same error.
bool is_shown_by_first(const RankEnd& own, const Ranks& ranks) {
  const std::optional<RankEnd> first = ranks.end_of(0);
  if (!first || first->code != own.code) return false;
  const std::string line = first_line(own.message), shown = first_line(first->message);
  return shown == line || shown == concat("rank ", own.rank, ": ", line);
}

}  // namespace

RankEnd end_of_run(const Ranks& ranks, const std::exception& error) {
  const Ending ending = ending_of(std::current_exception());
  RankEnd own{ranks.rank(), ending.code, ending.message, ending.family};
  if (dynamic_cast<const LostRank*>(&error) == nullptr) return own;
  const std::optional<RankEnd> first = ranks.first_end();
  if (first && first->rank != own.rank) {
    own.code = first->code;
    own.family = first->family;
    own.message = concat("rank ", first->rank, ": ", first->message);
  }
  return own;
}

void end_with_others(const Ranks& ranks, const std::function<void()>& run) {
  if (ranks.alone()) return run();
  RankEnd own{ranks.rank(), 0, "", std::nullopt};
  try {
    run();
  } catch (const std::exception& error) {
    own = end_of_run(ranks, error);
  }
  ranks.tell_end(own);
  const bool is_shown = own.code != 0 && !ranks.is_first() && is_shown_by_first(own, ranks);
  ranks.wait_for_ends(kSecondsForOthers);
  if (own.code == 0) return;
  Error error(static_cast<ExitCode>(own.code), is_shown ? "" : own.message);
  if (own.family) error.set_family(*own.family);
  throw error;
}

}  // namespace trainer
