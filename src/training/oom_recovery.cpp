#include "training/oom_recovery.h"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <utility>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/memory/summary.h"

namespace trainer {
namespace {

// Returns the largest micro-batch that contains one of `slots`.
const std::vector<int64_t>& largest_with(const EffectiveBatch& batch, const MicroBatchSplit& split,
                                         const std::vector<int64_t>& slots) {
  const auto size = [&](const std::vector<int64_t>& group) {
    const bool shares = std::ranges::any_of(
        slots, [&](int64_t slot) { return std::ranges::find(group, slot) != group.end(); });
    return shares ? size_of(batch, split, group) : -1;
  };
  return *std::ranges::max_element(split.micro_batches, {}, size);
}

// Tokens of the longest of these samples.
int64_t longest_of(const EffectiveBatch& batch, const MicroBatchSplit& split,
                   const std::vector<int64_t>& slots) {
  int64_t longest = 0;
  for (const int64_t slot : slots) {
    const Sample& sample = batch.samples[static_cast<size_t>(slot)];
    longest = std::max(longest, packed_tokens(sample) + packed_target_tokens(sample, split.encoder_decoder));
  }
  return longest;
}

using Rows = std::vector<std::pair<std::string, std::string>>;

std::string table(const Rows& rows) {
  std::ostringstream out;
  for (const auto& [name, value] : rows) out << "  " << std::left << std::setw(18) << name << value << '\n';
  return out.str();
}

Rows rows_of(at::Device device) {
  const MemorySummary memory = memory_summary(device);
  return {{"allocated now", bytes_string(memory.allocated)},
          {"peak", bytes_string(memory.peak)},
          {"limit", memory.limit > 0 ? bytes_string(memory.limit) : "none (memory.limit)"}};
}

// Other measures have figures, in the memory plan (training/memory_advice.h).
std::string advice(const Config& config, const Model& model) {
  std::vector<std::string> lines;
  if (!config.memory.limit.empty()) lines.push_back("a larger memory.limit, if the device has it");
  if (config.recovery.min_batch_size > 1) lines.push_back("recovery.min_batch_size: 1");
  if (model.encoder_decoder()) {
    lines.push_back(concat("shorter samples: data.max_source_length below ", config.data.max_source_length,
                           ", data.max_target_length below ", config.data.max_target_length));
  } else {
    lines.push_back(concat("shorter samples: data.max_length below ", config.data.max_length));
  }
  return "What helps, cheapest first:\n  " + join(lines, "\n  ");
}

}  // namespace

void split_by_limits(const EffectiveBatch& batch, MicroBatchSplit& split) {
  split.micro_batches = cut(batch, split.limits, split.encoder_decoder);
  split.packed_budget = packed_budget(split.limits, split.encoder_decoder);
}

int64_t size_of(const EffectiveBatch& batch, const MicroBatchSplit& split,
                const std::vector<int64_t>& slots) {
  if (split.packed_budget.tokens == 0) return static_cast<int64_t>(slots.size());
  int64_t tokens = 0;
  for (const int64_t slot : slots) {
    const Sample& sample = batch.samples[static_cast<size_t>(slot)];
    tokens += packed_tokens(sample) + packed_target_tokens(sample, split.encoder_decoder);
  }
  return tokens;
}

void recompute_as_learned(const EffectiveBatch& batch, MicroBatchSplit& split, const BatchBudget& budget) {
  if (budget.recompute_from == 0) return;
  const bool needs_it = std::ranges::any_of(split.micro_batches, [&](const std::vector<int64_t>& slots) {
    return longest_of(batch, split, slots) >= budget.recompute_from;
  });
  if (needs_it) split.recomputed_blocks = split.most_blocks;
}

Recovery recovery_of(const std::string& stage, const OutOfMemory& oom, const EffectiveBatch& batch,
                     const MicroBatchSplit& split, const std::vector<int64_t>& slots) {
  const std::vector<int64_t>& largest = largest_with(batch, split, slots);
  Recovery recovery;
  recovery.stage = stage;
  recovery.oom = oom;
  recovery.from_samples = static_cast<int64_t>(slots.size());
  recovery.to_samples = static_cast<int64_t>(largest.size());
  if (split.packed_budget.tokens > 0) {
    recovery.from_tokens = size_of(batch, split, slots);
    recovery.to_tokens = size_of(batch, split, largest);
  }
  recovery.recomputed_blocks = split.recomputed_blocks;
  return recovery;
}

void split_smaller(const EffectiveBatch& batch, MicroBatchSplit& split, BatchBudget& budget,
                   const std::vector<int64_t>& slots) {
  do {
    budget.shrink();
    split.limits.halvings = budget.halvings;
    split_by_limits(batch, split);
  } while (size_of(batch, split, largest_with(batch, split, slots)) >= size_of(batch, split, slots));
}

std::string Recovery::line() const {
  std::string how = "retrying the same after freeing memory";
  if (widen_again) {
    how =
        "retrying the same; recomputed layers no longer keep the widened weights of their second forward "
        "pass";
  } else if (to_tokens < from_tokens) {
    how = concat("the micro-batch of ", from_samples, " samples with ", from_tokens,
                 " tokens is split into smaller ones, of at most ", to_tokens,
                 " tokens; the result stays the same");
  } else if (to_samples < from_samples) {
    how = concat("the micro-batch of ", from_samples, " samples is split into smaller ones, of at most ",
                 to_samples, "; the result stays the same");
  } else if (recomputed_blocks > 0) {
    how = concat("retrying with gradient checkpointing in ", recomputed_blocks, " layers");
  }
  return concat("out of memory (", stage, "): ", oom.numbers(), "; ", how);
}

OomLoop OomRecovery::passes(const EffectiveBatch& batch, MicroBatchSplit& split, BatchBudget& budget,
                            const PassProgress& at) {
  return {options_.device, options_.clean_up, [&, this](const OutOfMemory& oom) {
            if (options_.free_spare && options_.free_spare()) return;
            count_retry(at.stage, oom);
            const std::vector<int64_t> failed = split.micro_batches.at(at.micro_batch);
            const auto samples = static_cast<int64_t>(failed.size());
            bool widen_again = false;
            if (std::exchange(split.widen_once, false)) {
              widen_again = budget.widen_again = true;
            } else if (samples > options_.config.min_batch_size && can_be_split(batch, failed)) {
              split_smaller(batch, split, budget, failed);
            } else if (split.recomputed_blocks < split.most_blocks) {
              split.recomputed_blocks = split.most_blocks;
              budget.recompute(longest_of(batch, split, failed));
            } else {
              give_up(
                  at.stage, oom,
                  samples == 1 ? "a single sample does not fit"
                  : !can_be_split(batch, failed)
                      ? "samples that must stay together do not fit"
                      : concat("recovery.min_batch_size: ", options_.config.min_batch_size, " is reached"));
            }
            Recovery recovery = recovery_of(name_of(at.stage), oom, batch, split, failed);
            recovery.widen_again = widen_again;
            announce(recovery);
          }};
}

void OomRecovery::repeat(const std::string& stage, const std::function<void()>& work) {
  OomLoop attempts(options_.device, /*clean_up=*/{}, [&](const OutOfMemory& oom) {
    if (options_.free_spare && options_.free_spare()) return;
    count_retry(stage, oom);
    Recovery recovery;
    recovery.stage = name_of(stage);
    recovery.oom = oom;
    announce(recovery);
  });
  while (attempts.next()) {
    try {
      work();
    } catch (const std::exception& error) {
      attempts.failed(error);
    }
  }
}

std::string OomRecovery::name_of(const std::string& stage) const {
  return options_.stage.empty() ? stage : options_.stage;
}

void OomRecovery::count_retry(const std::string& stage, const OutOfMemory& oom) {
  if (retries_ >= options_.config.max_retries)
    give_up(stage, oom, concat("recovery.max_retries: ", retries_, " is used up"));
  retries_++;
}

void OomRecovery::announce(const Recovery& recovery) {
  log::warning(recovery.line());
  if (options_.listener) options_.listener(recovery);
}

void OomRecovery::give_up(const std::string& stage, const OutOfMemory& oom, const std::string& why) {
  options_.clean_up();
  throw of_family(ErrorCode::oom_step,
                  OutOfMemoryError(concat("out of memory (", name_of(stage), "): ", oom.numbers(), "; ", why,
                                          "\n", options_.explain())));
}

std::string memory_table(const Config& config, Model& model, int64_t optimizer_state, at::Device device) {
  int64_t weights = 0, gradients = 0;
  model.for_each_parameter([&](const std::string&, Parameter& parameter) {
    if (parameter.value.offloaded()) return;
    weights += parameter.value.nbytes();
    if (!parameter.trained()) return;
    const bool wider = config.optimizer.grad_dtype == StateDtype::fp32;
    gradients +=
        parameter.numel() * static_cast<int64_t>(wider ? 4 : c10::elementSize(parameter.value.scalar_type()));
  });
  Rows rows{{"weights", bytes_string(weights)},
            {"gradients", bytes_string(gradients)},
            {"optimizer state", bytes_string(optimizer_state)}};
  for (auto& row : rows_of(device)) rows.push_back(std::move(row));
  return table(rows) + advice(config, model);
}

std::string memory_table(at::Device device, const std::string& advice) {
  return table(rows_of(device)) + advice;
}

}  // namespace trainer
