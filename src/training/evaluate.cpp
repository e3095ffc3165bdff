#include "trainer/training/evaluate.h"

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/data/step_loader.h"
#include "trainer/memory/device_memory.h"

#include "base/progress.h"
#include "objectives/objective.h"
#include "training/attempts.h"
#include "training/memory_table.h"
#include "training/with_blocks_together.h"

namespace trainer {

CutLimits cut_limits(const Config& config, bool encoder_decoder, int64_t batch_size) {
  const DataConfig& data = config.data;
  CutLimits limits{config.training.micro_batching, batch_size,
                   encoder_decoder ? data.max_source_length : data.max_length, data.max_target_length};
  limits.packing = data.packs();
  return limits;
}

CollateOptions collate_options(const Config& config, const Model& model) {
  CollateOptions options = model.collate_options();
  options.packing = config.data.packs();
  return options;
}

void settle_packing(Config& config, const Model& model, at::DeviceType device) {
  const bool packs = device == at::kCPU || model.packs_on_gpu();
  if (config.data.packing.is_automatic() && !packs) config.data.packing = false;
}

namespace {

// Sum of losses and number of correct tokens of a group of samples, on the device.
struct Sums {
  at::Tensor loss, correct;
};

StepLoader::NextIndices groups_of(const Dataset& dataset, int64_t size) {
  return [all = dataset.size(), size, first = int64_t{0}]() mutable {
    std::vector<int64_t> indices(static_cast<size_t>(std::min(size, all - first)));
    std::iota(indices.begin(), indices.end(), first);
    first += static_cast<int64_t>(indices.size());
    return indices;
  };
}

constexpr const char* kAdvice =
    "What helps: a larger memory.limit, if the device has it; shorter samples (data.max_source_length and "
    "data.max_target_length, for decoders data.max_length).";

Attempts attempts_with(const Config& config, at::Device device, const RecoveryListener& listener) {
  return Attempts({config.recovery, device, "evaluation", /*clean_up=*/[] {},
                   /*explain=*/[device] { return memory_table(device, kAdvice); }, listener});
}

// What one rank's share of the samples adds up to.
struct ShareOfEvaluation {
  double loss = 0, correct = 0;
  double normaliser = 0;  // of all ranks, as the next two
  int64_t samples = 0, supervised_tokens = 0;
};

ShareOfEvaluation evaluate_share(const Model& model, const Dataset& dataset, const Config& config,
                                 at::Device device, BatchBudget& budget, const RecoveryListener& listener,
                                 const std::function<void()>& between, const Share& share) {
  at::NoGradGuard no_grad;
  const ForwardContext context;
  const std::unique_ptr<Objective> objective = make_objective(config);
  ShareOfEvaluation result;
  const int64_t batch_size = config.eval_batch_size(),
                group = batch_size * 16;  // sorted by length within a group
  Division division;
  division.encoder_decoder = model.encoder_decoder();
  division.limits = cut_limits(config, division.encoder_decoder, batch_size);
  std::vector<Sums> groups;  // read after all were launched
  const int64_t every = config.memory.empty_cache_steps;
  int64_t micro_batches = 0;
  Progress shown("samples", dataset.size());
  StepLoader loader(dataset, groups_of(dataset, group),
                    {config.training.num_workers, config.data.prefetch, share});
  for (int64_t first = 0; first < dataset.size(); first += group) {
    const EffectiveBatch batch = loader.next();
    result.samples += static_cast<int64_t>(batch.samples.size());
    result.supervised_tokens += batch.supervised_tokens;
    result.normaliser += objective->normaliser(batch.samples, division.encoder_decoder);
    Attempts attempts = attempts_with(config, device, listener);
    division.limits.halvings = budget.halvings;
    cut_by_limits(batch, division);
    attempts.divide(batch, division, budget, [&](Place& place) {
      Sums sums{at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(device)),
                at::zeros({}, at::TensorOptions().dtype(at::kLong).device(device))};
      int64_t done = 0;
      for (place.micro_batch = 0; place.micro_batch < division.slots.size(); place.micro_batch++) {
        if (between) between();
        shown.set(first + share.of * done);
        done += std::ssize(division.slots[place.micro_batch]);
        const MicroBatch micro =
            collate(batch, division.slots[place.micro_batch], collate_options(config, model), device);
        if (micro.supervised_labels.numel() == 0) continue;
        const LossSum out = model.loss(micro, context, objective->options(Pass::evaluation));
        sums.loss += out.loss;
        sums.correct += out.correct;
        if (every > 0 && ++micro_batches % every == 0) empty_cache(device);
      }
      groups.push_back(std::move(sums));
    });
    if (attempts.retries() == 0) budget.succeeded(config.recovery.grow_after);
  }
  attempts_with(config, device, listener).repeat("evaluation", [&] {
    result.loss = result.correct = 0;
    for (const Sums& sums : groups) {
      result.loss += sums.loss.item<double>();
      result.correct += static_cast<double>(sums.correct.item<int64_t>());
    }
  });
  return result;
}

}  // namespace

EvaluationResult evaluate(const Model& model, const Dataset& dataset, const Config& config, at::Device device,
                          BatchBudget& budget, const RecoveryListener& listener,
                          const std::function<void()>& between, const Ranks& ranks) {
  ShareOfEvaluation own;
  const std::vector<std::string> notes = with_blocks_together(
      model, ranks,
      [&] {
        own = evaluate_share(model, dataset, config, device, budget, listener, between,
                             {ranks.rank(), ranks.count()});
        return note_of({own.loss, own.correct});
      },
      Channel::phases);
  double loss = 0, correct = 0;
  for (const std::string& note : notes) {
    const std::vector<double> sums = values_in(note);
    loss += sums.at(0);
    correct += sums.at(1);
  }
  const double supervised = static_cast<double>(std::max<int64_t>(own.supervised_tokens, 1));
  return {mean_of(loss, own.normaliser), correct / supervised, own.samples, own.supervised_tokens};
}

}  // namespace trainer
