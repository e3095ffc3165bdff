#include "training/evaluate_answers.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/data/batching.h"

#include "adapters/adapter_off.h"
#include "base/progress.h"
#include "objectives/answers.h"
#include "training/answers_passes.h"
#include "training/placement.h"

namespace trainer {
namespace {

// What the rows are besides the log-probabilities of their answers. All ranks know them.
struct RowsOfData {
  std::vector<AnswersOfRow> rows;
  bool all_kept = true;
  int64_t supervised_tokens = 0;
};

RowsOfData rows_of_data(const Dataset& dataset, const Config& config) {
  RowsOfData found;
  const bool encoder_decoder = dataset.encoder_decoder();
  const int64_t group = 16 * config.eval_batch_size();
  StepLoader loader(dataset, groups_of(dataset, group),
                    {config.training.num_workers, config.data.prefetch, {}});
  for (int64_t first = 0; first < dataset.size(); first += group) {
    const EffectiveBatch batch = loader.next();
    found.supervised_tokens += batch.supervised_tokens;
    for (int64_t row = 0; row < batch.rows(); row++) {
      AnswersOfRow& answers = found.rows.emplace_back();
      for (int64_t side = 0; side < batch.sides; side++) {
        const Sample& sample = batch.samples[static_cast<size_t>(side * batch.rows() + row)];
        const auto at = static_cast<size_t>(side);
        answers.desirable = sample.desirable;
        answers.tokens[at] = std::max(supervised_weight(sample, encoder_decoder), 1e-6);
        answers.reference[at] = sample.reference.value_or(0);
        found.all_kept = found.all_kept && sample.reference;
      }
    }
  }
  return found;
}

}  // namespace

DatasetSums sums_of_dataset(const Model& model, const Dataset& dataset, const Config& config,
                            at::Device device, bool with_others, BatchBudget& budget,
                            const RecoveryListener& listener, const std::function<void()>& between,
                            const Ranks& ranks) {
  const bool encoder_decoder = model.encoder_decoder();
  const int64_t sides = dataset.sides(), group = 16 * config.eval_batch_size();
  DatasetSums sums;
  sums.answers.assign(static_cast<size_t>(sides * dataset.size()), 0.0);
  if (with_others) sums.others.assign(static_cast<size_t>(dataset.size()), 0.0);
  const AnswersPass pass{model, config, device, {}, {}, between};
  run_on_all_ranks(
      model, ranks,
      [&] {
        MicroBatchSplit split;
        split.encoder_decoder = encoder_decoder;
        split.limits = cut_limits(config, encoder_decoder, config.eval_batch_size());
        Progress shown("answers", dataset.size());
        StepLoader loader(dataset, groups_of(dataset, group),
                          {config.training.num_workers, config.data.prefetch, {ranks.rank(), ranks.count()}});
        std::optional<Sample> last;
        if (with_others) last = dataset.sample(dataset.size() - 1);
        for (int64_t first = 0; first < dataset.size(); first += group) {
          shown.set(first);
          const EffectiveBatch batch = loader.next();
          OomRecovery recovery = recovery_of_evaluation(config, device, listener);
          const auto sums_of = [&](const EffectiveBatch& of) {
            split.limits.halvings = budget.halvings;
            split_by_limits(of, split);
            return sums_by_slot(pass, of, split, budget, recovery);
          };
          const std::vector<double> found = sums_of(batch);
          for (int64_t slot = 0; slot < std::ssize(found); slot++) {
            const int64_t row = first + slot % batch.rows(), side = slot / batch.rows();
            sums.answers[static_cast<size_t>(row * sides + side)] = found[static_cast<size_t>(slot)];
          }
          if (with_others) {
            std::ranges::copy(
                sums_of(with_other_answers(batch, *last, encoder_decoder, config.data.max_length)),
                sums.others.begin() + first);
            last = batch.samples.back();
          }
          if (recovery.retries() == 0) budget.succeeded(config.recovery.grow_after);
        }
      },
      Channel::phases);
  sums.answers = all_reduce(ranks, sums.answers, Channel::phases);
  if (with_others) sums.others = all_reduce(ranks, sums.others, Channel::phases);
  return sums;
}

EvaluationResult evaluate_answers(Model& model, const Dataset& dataset, const Config& config,
                                  at::Device device, BatchBudget& budget, const RecoveryListener& listener,
                                  const std::function<void()>& between, const Ranks& ranks) {
  const ObjectiveConfig& objective = config.objective;
  RowsOfData data = rows_of_data(dataset, config);
  const auto sums = [&] {
    return sums_of_dataset(model, dataset, config, device, objective.judges(), budget, listener, between,
                           ranks);
  };
  const DatasetSums policy = sums();
  DatasetSums reference;
  const bool needs_pass = objective.has_reference() && (!data.all_kept || objective.judges());
  if (needs_pass) {
    if (!has_adapter(model))
      throw ConfigError(
          "objective.reference: the reference is the model without its adapter, and this one has none; give "
          "the "
          "directory of the adapter, or objective.reference=none");
    const AdapterOff base(model);
    reference = sums();
  }
  double kl = 0;
  if (objective.judges()) kl = AnswersLoss::divergence(policy.others, reference.others);
  const AnswersLoss loss(objective);
  AnswerSums totals;
  const auto sides = static_cast<size_t>(dataset.sides());
  for (size_t row = 0; row < data.rows.size(); row++) {
    for (size_t side = 0; side < sides; side++) {
      data.rows[row].policy[side] = policy.answers[row * sides + side];
      if (needs_pass) data.rows[row].reference[side] = reference.answers[row * sides + side];
    }
    loss.slopes(data.rows[row], kl, totals);
  }
  EvaluationResult result{.samples = dataset.size(), .supervised_tokens = data.supervised_tokens};
  result.of_tokens = false;
  result.terms = loss.means(totals, kl);
  result.loss = result.terms.front().second;
  result.terms.erase(result.terms.begin());
  return result;
}

}  // namespace trainer
