#include "trainer/run/metric_rows.h"

#include <algorithm>
#include <cmath>

#include "trainer/memory/summary.h"
#include "trainer/run/run_length.h"

namespace trainer {

MetricRow train_row(const RunPosition& position, const EffectiveBatch& batch, const StepResult& result,
                    const StepSeconds& seconds, at::Device device) {
  const MemorySummary memory = memory_summary(device);
  const auto per_second = [&](int64_t count) {
    return static_cast<double>(count) / std::max(seconds.all, 1e-9);
  };
  const int64_t samples = batch.rows();
  MetricRow row{"train",
                {{"step", position.step},
                 {"epoch", epoch_of(position)},
                 {"loss", result.loss},
                 {"grad_norm", result.grad_norm},
                 {"learning_rate", result.learning_rate},
                 {"tokens", batch.tokens},
                 {"supervised_tokens", batch.supervised_tokens},
                 {"tokens_per_second", per_second(batch.tokens)},
                 {"supervised_tokens_per_second", per_second(batch.supervised_tokens)},
                 {"samples", samples},
                 {"samples_per_second", per_second(samples)},
                 {"samples_seen", position.samples_seen},
                 {"micro_batch_sizes", result.cuts},
                 {"recomputed_blocks", result.recomputed_blocks},
                 {"retries", result.retries},
                 {"step_seconds", seconds.all},
                 {"data_wait_seconds", seconds.data_wait},
                 {"memory_allocated", memory.allocated},
                 {"memory_reserved", memory.reserved},
                 {"memory_peak", result.highest_peak ? result.highest_peak->peak : memory.peak},
                 {"memory_resident", memory.resident}}};
  for (const auto& [name, value] : result.terms) row.values[name] = value;
  const PackedBudget& packed = result.packed_budget;
  if (packed.tokens > 0) row.values["micro_batch_tokens"] = packed.tokens;
  if (packed.target_tokens > 0) row.values["micro_batch_target_tokens"] = packed.target_tokens;
  if (result.bytes_exchanged > 0) row.values["bytes_exchanged"] = result.bytes_exchanged;
  if (result.highest_peak) row.values["memory_peak_rank"] = result.highest_peak->rank;
  const int64_t limit = result.highest_peak ? result.highest_peak->limit : memory.limit;
  if (limit > 0) row.values["memory_limit"] = limit;
  if (result.skipped) row.values["skipped"] = true;
  return row;
}

MetricRow evaluation_row(const RunPosition& position, const EvaluationResult& result,
                         const Predictions* predictions, double seconds) {
  MetricRow row{"eval", {{"step", position.step}, {"epoch", epoch_of(position)}, {"eval_loss", result.loss}}};
  if (result.of_tokens) row.values["eval_perplexity"] = std::exp(result.loss);
  for (const auto& [name, value] : result.terms) row.values["eval_" + name] = value;
  if (result.confusion) {
    row.values["eval_classes"] = result.confusion->classes;
    row.values["eval_confusion"] = result.confusion->rows;
    row.values["eval_class_f1"] = result.confusion->f1;
  }
  row.values["eval_samples"] = result.samples;
  row.values["eval_supervised_tokens"] = result.supervised_tokens;
  row.values["eval_seconds"] = seconds;
  if (predictions != nullptr) {
    for (const auto& [name, value] : predictions->scores) row.values["eval_" + name] = value;
    row.values["eval_generated_samples"] = predictions->rows.size();
    row.values["eval_gen_len"] = predictions->mean_tokens;
    row.values["eval_generation_seconds"] = predictions->seconds;
  }
  return row;
}

MetricRow recovery_row(const RunPosition& position, const Recovery& recovery) {
  const auto known = [](int64_t bytes) {
    return bytes >= 0 ? nlohmann::ordered_json(bytes) : nlohmann::ordered_json();
  };
  MetricRow row{"recovery",
                {{"step", position.step},
                 {"stage", recovery.stage},
                 {"asked", known(recovery.oom.asked)},
                 {"free", known(recovery.oom.free)},
                 {"allocated", known(recovery.oom.allocated)},
                 {"from_samples", recovery.from_samples},
                 {"to_samples", recovery.to_samples},
                 {"recomputed_blocks", recovery.recomputed_blocks},
                 {"message", recovery.oom.message}}};
  if (recovery.from_tokens > 0) {
    row.values["from_tokens"] = recovery.from_tokens;
    row.values["to_tokens"] = recovery.to_tokens;
  }
  return row;
}

MetricRow save_row(int64_t step, const std::string& path, int64_t bytes, double seconds, bool in_background) {
  MetricRow row{"save", {{"step", step}, {"path", path}, {"bytes", bytes}, {"seconds", seconds}}};
  if (in_background) row.values["in_background"] = true;
  return row;
}

}  // namespace trainer
