#include "training/attempts.h"

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

namespace trainer {
int64_t largest_with(const Division& division, const std::vector<int64_t>& slots) {
  size_t largest = 0;
  for (const std::vector<int64_t>& group : division.slots) {
    const bool shares = std::ranges::any_of(
        slots, [&](int64_t slot) { return std::ranges::find(group, slot) != group.end(); });
    if (shares) largest = std::max(largest, group.size());
  }
  return static_cast<int64_t>(largest);
}

void cut_smaller(const EffectiveBatch& batch, Division& division, BatchBudget& budget,
                 const std::vector<int64_t>& slots) {
  do {
    budget.shrink();
    division.limits.halvings = budget.halvings;
    division.slots = cut(batch, division.limits, division.encoder_decoder);
  } while (largest_with(division, slots) >= static_cast<int64_t>(slots.size()));
}

std::string Recovery::line() const {
  std::string how = "the same again after freeing memory";
  if (to_samples < from_samples) {
    how = concat("the micro-batch of ", from_samples, " samples is cut into smaller ones, of at most ",
                 to_samples, "; the result stays the same");
  } else if (recomputed_blocks > 0) {
    how = concat("once more with ", recomputed_blocks, " blocks computed again in backward");
  }
  return concat("out of memory (", stage, "): ", lack.numbers(), "; ", how);
}

void Attempts::divide(const EffectiveBatch& batch, Division& division, BatchBudget& budget,
                      const std::function<void(Place&)>& work) {
  for (;;) {
    Place place;
    const std::optional<OutOfMemory> lack = catch_oom([&] { work(place); });
    if (!lack) return;
    free_memory();
    const std::string stage = options_.stage.empty() ? place.stage : options_.stage;
    if (retries_ >= options_.config.max_retries)
      give_up(stage, *lack, concat("recovery.max_retries: ", retries_, " is used up"));
    retries_++;
    const std::vector<int64_t> failed = division.slots.at(place.micro_batch);
    const auto samples = static_cast<int64_t>(failed.size());
    if (samples > options_.config.min_batch_size) {
      cut_smaller(batch, division, budget, failed);
    } else if (division.recomputed_blocks < division.most_blocks) {
      division.recomputed_blocks = division.most_blocks;
    } else {
      give_up(stage, *lack,
              samples == 1
                  ? "a single sample does not fit"
                  : concat("recovery.min_batch_size: ", options_.config.min_batch_size, " is reached"));
    }
    announce({stage, *lack, samples, largest_with(division, failed), division.recomputed_blocks});
  }
}

void Attempts::repeat(const std::string& stage, const std::function<void()>& work) {
  const std::string& name = options_.stage.empty() ? stage : options_.stage;
  for (;;) {
    const std::optional<OutOfMemory> lack = catch_oom(work);
    if (!lack) return;
    free_after_oom(options_.device);
    if (retries_ >= options_.config.max_retries) {
      options_.clean_up();
      give_up(name, *lack, concat("recovery.max_retries: ", retries_, " is used up"));
    }
    retries_++;
    announce({name, *lack, 0, 0, 0});
  }
}

void Attempts::free_memory() {
  options_.clean_up();
  free_after_oom(options_.device);
}

void Attempts::announce(const Recovery& recovery) {
  log::warning(recovery.line());
  if (options_.listener) options_.listener(recovery);
}

void Attempts::give_up(const std::string& stage, const OutOfMemory& lack, const std::string& why) {
  throw OutOfMemoryError(
      concat("out of memory (", stage, "): ", lack.numbers(), "; ", why, "\n", options_.explain()));
}

}  // namespace trainer
