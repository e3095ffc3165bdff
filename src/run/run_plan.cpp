#include "run/run_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <c10/util/Exception.h>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/data/length_counts.h"
#include "trainer/memory/limit.h"
#include "trainer/memory/summary.h"
#include "trainer/training/solve_plan.h"

#include "memory/offload.h"
#include "training/memory_advice.h"

namespace trainer {
namespace {

std::vector<int64_t> shortest_of(const Dataset& train) {
  constexpr int64_t most = 4096;  // a row of packed samples seldom has more
  LengthCounts all;
  int64_t index = 0;
  for (const SampleSet& set : train.sets()) {
    const int64_t times = set.samples > 0 ? (set.in_epoch() + set.samples - 1) / set.samples : 0;
    for (const int64_t end = index + set.samples; index < end; index++) {
      for (int64_t side = 0; side < train.sides(); side++) {
        const Dataset::Lengths lengths = train.lengths(index, side);
        all.add(lengths.input_tokens + lengths.target_tokens, times);
      }
    }
  }
  std::vector<int64_t> shortest;
  for (const auto& [length, times] : all.counts()) {
    const int64_t taken = std::min(times, most - std::ssize(shortest));
    shortest.insert(shortest.end(), static_cast<size_t>(taken), length);
  }
  return shortest;
}

}  // namespace

SampleLengths sample_lengths(const Dataset& train, c10::DeviceType device) {
  const DataReport& report = train.report();
  if (train.encoder_decoder()) return {report.input.longest, report.target.longest};
  SampleLengths lengths{report.longest_sample, 0};
  if (device != c10::kCPU) lengths.shortest = shortest_of(train);
  return lengths;
}

int64_t memory_for_run(c10::Device device, int64_t sharers) {
  const int64_t limit = process_limit(device);
  return limit > 0 ? limit : (memory_summary(device).allocated + free_memory(device) / sharers) / 10 * 9;
}

// What the configuration leaves open is chosen by the plan.
static RunPlan with_numbers(const Config& asked, const PlanTarget& target, c10::Device device, int64_t most) {
  const int64_t limit = process_limit(device);
  const bool open = asked.training.batch_size.is_automatic() ||
                    asked.memory.gradient_checkpointing.is_automatic() || asked.memory.offload.automatic;
  if (!open) {
    try {
      const FilledPlan filled = fill_defaults(asked, asked.model.path, target, most);
      Planner planner(filled.config, asked.model.path, target);
      return {filled.config, filled.plan ? *filled.plan : planner.as_configured().plan, limit,
              filled.gave_way};
    } catch (const c10::Error& error) {  // a run must not fail because its plan does
      log::warning(concat("no memory plan: ", error.what_without_backtrace()));
      return {asked, {}, limit, false};
    }
  }
  const Config config = fill_defaults(asked, asked.model.path, target, most).config;
  Planner planner(config, config.model.path, target);
  std::optional<PlanChoice> choice = planner.cheapest(most, /*whatever=*/false);
  // The weights have been loaded: it is too late to choose where they lie.
  if (choice && choice->plan.offload.weights != config.memory.offload.weights) choice.reset();
  if (!choice) {
    throw of_family(ErrorCode::oom_plan,
                    OutOfMemoryError(concat(
                        "no value that auto allows for training.batch_size, memory.gradient_checkpointing or "
                        "memory.offload fits. The smallest plan is\n",
                        plan_table(planner.as_configured().plan, most),
                        "Shorter samples help, or more memory (memory.limit, another device).",
                        advice_to_fit(config, target, device))));
  }
  return {planner.with(*choice), choice->plan, limit, true};
}

RunPlan plan_run(const Config& asked, const PlanTarget& target, c10::Device device, int64_t most) {
  RunPlan run = with_numbers(asked, target, device, most);
  if (run.known()) widen_once_if_it_fits(run.config, run.plan, asked.model.path, target, most);
  return run;
}

std::vector<std::pair<std::string, std::string>> RunPlan::lines() const {
  if (!known()) return {{"memory plan", "not known"}};
  std::string total = concat(bytes_string(plan.total()), " at the peak");
  if (limit > 0) {
    const int64_t left = limit - plan.total();
    total += concat(", ", bytes_string(std::abs(left)), left >= 0 ? " below" : " ABOVE", " the limit of ",
                    bytes_string(limit));
  }
  std::vector<std::string> parts;
  for (const MemoryPlan::Part& part : plan.parts()) {
    if (part.bytes > 0) parts.push_back(concat(part.name, " ", bytes_string(part.bytes)));
  }
  std::vector<std::pair<std::string, std::string>> lines{
      {"memory plan", total},
      {"estimated memory", concat("by part: ", join(parts))},
      {"planned for", concat("batch_size ", plan.batch_size, ", gradient checkpointing ",
                             plan.recompute_blocks == 0
                                 ? (plan.light ? "light" : "off")
                                 : concat("in ", plan.recompute_blocks, " of ", plan.num_blocks, " layers"),
                             plan.widen_once ? ", which widen their weights once for both passes" : "",
                             solved ? ", chosen by the plan" : "")}};
  if (plan.offloaded.total() > 0) lines.emplace_back("offloaded", offloaded_text());
  return lines;
}

std::string RunPlan::offloaded_text() const {
  std::vector<std::string> parts;
  for (const MemoryPlan::Part& part : plan.offloaded_parts()) {
    if (part.bytes > 0) parts.push_back(concat(part.name, " ", bytes_string(part.bytes)));
  }
  return concat(join(parts), "; ", bytes_string(plan.offloaded.moved), " move in a step, some ",
                std::round(10 * plan.offloaded.seconds) / 10, " s");
}

bool RunPlan::exceeds_plan(int64_t measured) const { return measured > plan.peak() / 100 * 105; }

std::string RunPlan::compared(int64_t measured, std::optional<int64_t> rank) const {
  const std::string text = concat("memory: peak of tensors in the first step ", bytes_string(measured),
                                  rank ? concat(" (rank ", *rank, ")") : "",
                                  "; planned for a step of the longest samples ", bytes_string(plan.peak()));
  return exceeds_plan(measured) ? text + ": the plan was too low" : text;
}

MetricRow RunPlan::row(int64_t step, int64_t measured, std::optional<int64_t> rank) const {
  MetricRow row{"memory", {{"step", step}, {"peak", measured}, {"planned_peak", plan.peak()}}};
  for (const MemoryPlan::Part& part : plan.parts()) row.values["planned_" + part.key] = part.bytes;
  if (rank) row.values["rank"] = *rank;
  row.values["batch_size"] = plan.batch_size;
  row.values["recompute_blocks"] = plan.recompute_blocks;
  if (limit > 0) row.values["limit"] = limit;
  if (plan.offloaded.total() > 0) {
    row.values["planned_offloaded"] = plan.offloaded.total();
    row.values["offloaded"] = offload_use().peak;
  }
  return row;
}

void check_room(const RunPlan& run, c10::Device device, int64_t on_this_machine) {
  const int64_t needed = run.plan.offloaded.total() - offload_use().in_use;  // weights may be there already
  if (needed <= 0) return;
  const std::string& directory = run.config.offload_directory();
  const int64_t room = room_below(device, directory);
  if (needed * on_this_machine <= room) return;
  const std::string what = on_this_machine == 1
                               ? bytes_string(needed)
                               : concat(bytes_string(needed * on_this_machine), " (", bytes_string(needed),
                                        " for each of the ", on_this_machine, " processes of this machine)");
  throw of_family(
      ErrorCode::offload_room,
      OutOfMemoryError(device.is_cuda()
                           ? concat("memory.offload: needs ", what, " of the host's memory, and ",
                                    bytes_string(room),
                                    " are free; offload less, or use a machine with more memory")
                           : concat("memory.offload: needs ", what, " in ", directory, ", and ",
                                    bytes_string(room), " are free; make room, or set memory.offload_dir")));
}

// Returns the bytes that may be offloaded: those that are already, and those for which there is room.
static int64_t room_of_run(const Config& config, c10::Device device) {
  try {
    return offload_use().in_use + room_below(device, config.offload_directory());
  } catch (const FormatError&) {  // it is not known
    return std::numeric_limits<int64_t>::max();
  }
}

std::string advice_to_fit(const Config& config, const PlanTarget& target, c10::Device device) {
  const std::string text =
      what_would_fit(config, config.model.path, target, memory_for_run(device), room_of_run(config, device));
  return text.empty() ? "" : "\n" + text;
}

std::string advice_after_retries(const Config& config, const PlanTarget& target, c10::Device device) {
  Config smallest = config;
  smallest.training.effective_batch_size = config.effective_batch_size();
  smallest.training.gradient_accumulation_steps.reset();
  smallest.training.batch_size =
      std::min<int64_t>(config.training.batch_size, config.recovery.min_batch_size);
  smallest.memory.gradient_checkpointing = true;
  return advice_to_fit(smallest, target, device);
}

}  // namespace trainer
