#include "trainer/training/evaluate.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/data/step_loader.h"
#include "trainer/memory/cache_watch.h"

#include "base/progress.h"
#include "objectives/objective.h"
#include "training/evaluate_answers.h"
#include "training/evaluate_labels.h"
#include "training/evaluation_splits.h"
#include "training/placement.h"

namespace trainer {

CutLimits cut_limits(const Config& config, bool encoder_decoder, int64_t batch_size) {
  const DataConfig& data = config.data;
  CutLimits limits{config.training.micro_batching, batch_size,
                   encoder_decoder ? data.max_source_length : data.max_length, config.max_target_length()};
  limits.packing = data.packs();
  return limits;
}

CollateOptions collate_options(const Config& config, const Model& model, uint64_t random_key) {
  CollateOptions options = model.collate_options();
  options.random_key = random_key;
  options.packing = config.data.packs();
  return options;
}

void settle_packing(Config& config, const Model& model, at::DeviceType device) {
  if (!model.packs()) config.data.packing = false;
  const bool packs = device == at::kCPU || model.packs_on_gpu();
  if (config.data.packing.is_automatic() && !packs) config.data.packing = false;
}

namespace {

// Runs micro-batches of an evaluation.
class EvaluationPasses {
 public:
  EvaluationPasses(const Model& model, const Config& config, const Objective& objective, at::Device device,
                   const std::function<void()>& between)
      : model_(model), config_(config), objective_(objective), device_(device), between_(between) {}

  // Runs all passes over a batch from the beginning. `shown` goes on from `first`, by `ranks` for each
  // sample.
  TermSums run(const EffectiveBatch& batch, const MicroBatchSplit& split, PassProgress& at, Progress& shown,
               int64_t first, int64_t ranks) {
    TermSums sums(objective_, Pass::evaluation, device_);
    for (at.micro_batch = 0; at.micro_batch < split.micro_batches.size(); at.micro_batch++) {
      if (between_) between_();
      shown.set(first);
      const std::vector<int64_t>& slots = split.micro_batches[at.micro_batch];
      first += ranks * std::ssize(slots);
      const MicroBatch micro = collate(batch, slots, collate_options(config_, model_), device_);
      if (micro.supervised_labels.numel() == 0) continue;
      sums.add(model_.loss(micro, ForwardContext(), objective_.options(Pass::evaluation)));
      cache_watch_.after_step(config_.memory.empty_cache_steps, device_);
    }
    return sums;
  }

 private:
  const Model& model_;
  const Config& config_;
  const Objective& objective_;
  at::Device device_;
  const std::function<void()>& between_;
  CacheWatch cache_watch_;
};

// The sums over one rank's share of the samples.
struct ShareOfEvaluation {
  std::vector<double> sums;  // one for each term of the objective
  double normaliser = 0;     // over all ranks, as the next two
  int64_t samples = 0, supervised_tokens = 0;
};

ShareOfEvaluation evaluate_share(const Model& model, const Dataset& dataset, const Config& config,
                                 const Objective& objective, at::Device device, BatchBudget& budget,
                                 const RecoveryListener& listener, const std::function<void()>& between,
                                 const Share& share) {
  at::NoGradGuard no_grad;
  ShareOfEvaluation result;
  const int64_t group = 16 * config.eval_batch_size();  // sorted by length within a group
  EvaluationSplits splits(model, config, device, budget, listener);
  EvaluationPasses passes(model, config, objective, device, between);
  std::vector<TermSums> groups;  // read after all were launched
  Progress shown("samples", dataset.size());
  StepLoader loader(dataset, groups_of(0, dataset.size(), group),
                    {config.training.num_workers, config.data.prefetch, share});
  for (int64_t first = 0; first < dataset.size(); first += group) {
    const EffectiveBatch batch = loader.next();
    result.samples += static_cast<int64_t>(batch.samples.size());
    result.supervised_tokens += batch.supervised_tokens;
    result.normaliser += objective.normaliser(batch.samples, model.encoder_decoder());
    groups.push_back(splits.run(batch, [&](const MicroBatchSplit& split, PassProgress& at) {
      return passes.run(batch, split, at, shown, first, share.of);
    }));
  }
  recovery_of_evaluation(config, device, listener).repeat("evaluation", [&] {
    result.sums.assign(objective.terms(Pass::evaluation).size(), 0.0);
    for (const TermSums& sums : groups) {
      for (size_t term = 0; term < result.sums.size(); term++)
        result.sums[term] += sums.values()[term].item<double>();
    }
  });
  return result;
}

}  // namespace

EvaluationResult evaluate(Model& model, const Dataset& dataset, const Config& config, at::Device device,
                          BatchBudget& budget, const RecoveryListener& listener,
                          const std::function<void()>& between, const Ranks& ranks) {
  if (config.objective.row_score() != RowScore::none && model.head().scores() == nullptr)
    throw ConfigError(concat("objective.name: ", config.objective.name,
                             ": this model has no head that scores texts; it writes them"));
  if (config.objective.embeds())
    return evaluate_vectors(model, dataset, config, device, budget, listener, between, ranks);
  if (config.objective.classifies())
    return evaluate_labels(model, dataset, config, device, budget, listener, between, ranks);
  if (config.objective.compares())
    return evaluate_answers(model, dataset, config, device, budget, listener, between, ranks);
  const std::unique_ptr<Objective> objective = make_objective(config);
  ShareOfEvaluation own;
  const std::vector<std::string> notes = run_on_all_ranks(
      model, ranks,
      [&] {
        own = evaluate_share(model, dataset, config, *objective, device, budget, listener, between,
                             {ranks.rank(), ranks.count()});
        return note_of(own.sums);
      },
      Channel::phases);
  std::vector<double> sums(own.sums.size(), 0.0);
  for (const std::string& note : notes) {
    const std::vector<double> of_rank = values_in(note);
    for (size_t term = 0; term < sums.size(); term++) sums[term] += of_rank.at(term);
  }
  EvaluationResult result{.samples = own.samples, .supervised_tokens = own.supervised_tokens};
  result.terms = means_of(*objective, Pass::evaluation, sums, own.normaliser, own.supervised_tokens);
  result.loss = result.terms.front().second;
  result.terms.erase(result.terms.begin());
  return result;
}

}  // namespace trainer
