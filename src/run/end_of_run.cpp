#include "run/end_of_run.h"

#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include <c10/util/Exception.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/memory/oom.h"

#include "base/ending.h"
#include "base/text.h"

namespace trainer {
namespace {

// Rank 0 holds the messages of all, so it leaves last.
constexpr double kSecondsForOthers = 10;

// Returns whether rank 0 shows the same error.
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
  ranks.notify_end(own);
  const bool is_shown = own.code != 0 && !ranks.is_first() && is_shown_by_first(own, ranks);
  ranks.wait_for_ends(kSecondsForOthers);
  if (own.code == 0) return;
  Error error(static_cast<ExitCode>(own.code), is_shown ? "" : own.message);
  if (own.family) error.set_family(*own.family);
  throw error;
}

// oneDNN's words when there is no memory for the code of a kernel; its other errors say more. It keeps what
// it could not complete, and calling it again ends in a segmentation fault: no smaller micro-batch is tried.
static bool is_lack_of_kernel_memory(const std::exception& error) {
  return std::string_view(error.what()) == "could not create a primitive";
}

void translate_torch_errors(const std::string& memory_advice, const std::function<void()>& command) {
  std::optional<OutOfMemory> oom;
  try {
    oom = catch_oom(command);
  } catch (const c10::Error& e) {
    const std::string what = e.what_without_backtrace();
    if (is_device_fault(e))
      throw DeviceFault(concat("the GPU reported an error and cannot be used further: ", first_line(what)));
    throw std::runtime_error(what);
  } catch (const std::exception& error) {
    if (!is_lack_of_kernel_memory(error)) throw;
    throw of_family(
        ErrorCode::oom_host,
        OutOfMemoryError(concat(
            "out of memory on the host: none was left for the code of a matrix product (ulimit -v or -d, a "
            "container's limit)\n",
            memory_advice)));
  }
  if (oom) throw OutOfMemoryError(concat(oom->message, "\n", memory_advice));
}

}  // namespace trainer
