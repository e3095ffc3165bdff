#include "training/attempts.h"

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace {

// Returns the largest micro-batch that contains one of `slots`.
const std::vector<int64_t>& largest_with(const EffectiveBatch& batch, const Division& division,
                                         const std::vector<int64_t>& slots) {
  const auto size = [&](const std::vector<int64_t>& group) {
    const bool shares = std::ranges::any_of(
        slots, [&](int64_t slot) { return std::ranges::find(group, slot) != group.end(); });
    return shares ? size_of(batch, division, group) : -1;
  };
  return *std::ranges::max_element(division.slots, {}, size);
}

// Tokens of the longest of these samples.
int64_t longest_of(const EffectiveBatch& batch, const Division& division, const std::vector<int64_t>& slots) {
  int64_t longest = 0;
  for (const int64_t slot : slots) {
    const Sample& sample = batch.samples[static_cast<size_t>(slot)];
    longest =
        std::max(longest, packed_tokens(sample) + packed_target_tokens(sample, division.encoder_decoder));
  }
  return longest;
}

}  // namespace

void cut_by_limits(const EffectiveBatch& batch, Division& division) {
  division.slots = cut(batch, division.limits, division.encoder_decoder);
  division.packed_budget = packed_budget(division.limits, division.encoder_decoder);
}

int64_t size_of(const EffectiveBatch& batch, const Division& division, const std::vector<int64_t>& slots) {
  if (division.packed_budget.tokens == 0) return static_cast<int64_t>(slots.size());
  int64_t tokens = 0;
  for (const int64_t slot : slots) {
    const Sample& sample = batch.samples[static_cast<size_t>(slot)];
    tokens += packed_tokens(sample) + packed_target_tokens(sample, division.encoder_decoder);
  }
  return tokens;
}

void recompute_as_learned(const EffectiveBatch& batch, Division& division, const BatchBudget& budget) {
  if (budget.recompute_from == 0) return;
  const bool needs_it = std::ranges::any_of(division.slots, [&](const std::vector<int64_t>& slots) {
    return longest_of(batch, division, slots) >= budget.recompute_from;
  });
  if (needs_it) division.recomputed_blocks = division.most_blocks;
}

Recovery recovery_of(const std::string& stage, const OutOfMemory& lack, const EffectiveBatch& batch,
                     const Division& division, const std::vector<int64_t>& slots) {
  const std::vector<int64_t>& largest = largest_with(batch, division, slots);
  Recovery recovery;
  recovery.stage = stage;
  recovery.lack = lack;
  recovery.from_samples = static_cast<int64_t>(slots.size());
  recovery.to_samples = static_cast<int64_t>(largest.size());
  if (division.packed_budget.tokens > 0) {
    recovery.from_tokens = size_of(batch, division, slots);
    recovery.to_tokens = size_of(batch, division, largest);
  }
  recovery.recomputed_blocks = division.recomputed_blocks;
  return recovery;
}

void cut_smaller(const EffectiveBatch& batch, Division& division, BatchBudget& budget,
                 const std::vector<int64_t>& slots) {
  do {
    budget.shrink();
    division.limits.halvings = budget.halvings;
    cut_by_limits(batch, division);
  } while (size_of(batch, division, largest_with(batch, division, slots)) >= size_of(batch, division, slots));
}

std::string Recovery::line() const {
  std::string how = "retrying the same after freeing memory";
  if (to_tokens < from_tokens) {
    how = concat("the micro-batch of ", from_samples, " samples with ", from_tokens,
                 " tokens is split into smaller ones, of at most ", to_tokens,
                 " tokens; the result stays the same");
  } else if (to_samples < from_samples) {
    how = concat("the micro-batch of ", from_samples, " samples is split into smaller ones, of at most ",
                 to_samples, "; the result stays the same");
  } else if (recomputed_blocks > 0) {
    how = concat("retrying with ", recomputed_blocks, " blocks recomputed in backward");
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
      budget.recompute(longest_of(batch, division, failed));
    } else {
      give_up(stage, *lack,
              samples == 1
                  ? "a single sample does not fit"
                  : concat("recovery.min_batch_size: ", options_.config.min_batch_size, " is reached"));
    }
    announce(recovery_of(stage, *lack, batch, division, failed));
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
    Recovery recovery;
    recovery.stage = name;
    recovery.lack = *lack;
    announce(recovery);
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
  throw of_family(ErrorCode::oom_step,
                  OutOfMemoryError(concat("out of memory (", stage, "): ", lack.numbers(), "; ", why, "\n",
                                          options_.explain())));
}

}  // namespace trainer
