#include "training/evaluate_answers.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <ATen/core/grad_mode.h>

#include "trainer/base/error.h"

#include "adapters/adapter_off.h"
#include "base/progress.h"
#include "objectives/answers.h"
#include "training/answers_passes.h"
#include "training/evaluation_splits.h"
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
  StepLoader loader(dataset, groups_of(0, dataset.size(), group),
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
        answers.tokens[at] = std::max(label_weight(sample, encoder_decoder, SumOf::answer), 1e-6);
        answers.reference[at] = sample.reference.value_or(0);
        if (side == 0) answers.nll_tokens = std::max(label_weight(sample, encoder_decoder, SumOf::nll), 1e-6);
        found.all_kept = found.all_kept && sample.reference;
      }
    }
  }
  return found;
}

// What the passes over all groups of a data set share.
class Groups {
 public:
  explicit Groups(const DatasetPass& pass)
      : pass_{pass.model, pass.config, pass.device, {}, 0, {}, pass.between, pass.of},
        splits_(pass.model, pass.config, pass.device, pass.budget, pass.listener) {}

  // Returns what each slot of this rank's share gives.
  std::vector<double> sums(const EffectiveBatch& batch) {
    const at::NoGradGuard no_grad;
    return splits_.run(batch, [&](const MicroBatchSplit& split, PassProgress& at) {
      return sums_of_split(pass_, batch, split, at);
    });
  }

 private:
  AnswersPass pass_;
  EvaluationSplits splits_;
};

}  // namespace

std::vector<RowPair> rows_with_the_one_before(int64_t rows) {
  std::vector<RowPair> pairs;
  for (int64_t row = 0; row < rows; row++) pairs.emplace_back(row, (row + rows - 1) % rows);
  return pairs;
}

std::vector<double> DatasetPass::answers(int64_t begin, int64_t end) const {
  const int64_t sides = dataset.sides();
  std::vector<double> values(static_cast<size_t>(sides * (end - begin)), 0.0);
  Progress shown("answers", end - begin);
  run_on_all_ranks(
      model, ranks,
      [&] {
        Groups groups(*this);
        StepLoader loader(dataset, groups_of(begin, end, group()),
                          {config.training.num_workers, config.data.prefetch, {ranks.rank(), ranks.count()}});
        for (int64_t first = 0; first < end - begin; first += group()) {
          shown.set(first);
          const EffectiveBatch batch = loader.next();
          const std::vector<double> found = groups.sums(batch);
          for (int64_t slot = 0; slot < std::ssize(found); slot++) {
            const int64_t row = first + slot % batch.rows(), side = slot / batch.rows();
            values[static_cast<size_t>(row * sides + side)] = found[static_cast<size_t>(slot)];
          }
        }
      },
      Channel::phases);
  return all_reduce(ranks, values, Channel::phases);
}

std::vector<double> DatasetPass::others(std::span<const RowPair> pairs) const {
  std::vector<double> values(pairs.size(), 0.0);
  run_on_all_ranks(
      model, ranks,
      [&] {
        Groups groups(*this);
        const auto size = static_cast<size_t>(group());
        for (size_t first = 0; first < pairs.size(); first += size) {
          EffectiveBatch batch;
          batch.share = {ranks.rank(), ranks.count()};
          for (const auto& [row, other] : pairs.subspan(first, std::min(size, pairs.size() - first)))
            batch.samples.push_back(with_answer_of(dataset.sample(row), dataset.sample(other),
                                                   model.encoder_decoder(), config.data.max_length));
          std::ranges::copy(groups.sums(batch), values.begin() + static_cast<std::ptrdiff_t>(first));
        }
      },
      Channel::phases);
  return all_reduce(ranks, values, Channel::phases);
}

EvaluationResult evaluate_answers(Model& model, const Dataset& dataset, const Config& config,
                                  at::Device device, BatchBudget& budget, const RecoveryListener& listener,
                                  const std::function<void()>& between, const Ranks& ranks) {
  const ObjectiveConfig& objective = config.objective;
  RowsOfData data = rows_of_data(dataset, config);
  const DatasetPass pass{model, dataset, config, device, budget, listener, between, ranks, SumOf::answer};
  const std::vector<RowPair> others =
      objective.judges() ? rows_with_the_one_before(dataset.size()) : std::vector<RowPair>();
  if (objective.nll_over == "tokens") {
    double sum = 0;
    for (const AnswersOfRow& row : data.rows) sum += row.nll_tokens;
    for (AnswersOfRow& row : data.rows) row.nll_tokens = sum / static_cast<double>(data.rows.size());
  }
  const bool needs_pass = objective.has_reference() && !data.all_kept;
  const std::vector<double> policy = pass.answers(0, dataset.size());
  const std::vector<double> of_others = pass.others(others);
  std::vector<double> nll = policy;
  if (config.data.loss_on == LossOn::everything) {
    DatasetPass of_all_tokens = pass;
    of_all_tokens.of = SumOf::nll;
    nll = of_all_tokens.answers(0, dataset.size());
  }
  std::vector<double> reference, reference_of_others;
  if (needs_pass) {
    if (!has_adapter(model))
      throw ConfigError(
          "objective.reference: the reference is the model without its adapter, and this one has none; give "
          "the directory of the adapter, or objective.reference=none");
    const AdapterOff base(model);
    reference = pass.answers(0, dataset.size());
    reference_of_others = pass.others(others);
  } else {
    for (const RowPair& pair : others)
      reference_of_others.push_back(dataset.reference_of_other(pair).value_or(0));
  }
  const double kl = objective.judges() ? AnswersLoss::divergence(of_others, reference_of_others) : 0.0;
  const AnswersLoss loss(objective);
  AnswerSums totals;
  const auto sides = static_cast<size_t>(dataset.sides());
  for (size_t row = 0; row < data.rows.size(); row++) {
    for (size_t side = 0; side < sides; side++) {
      data.rows[row].policy[side] = policy[row * sides + side];
      if (needs_pass) data.rows[row].reference[side] = reference[row * sides + side];
    }
    data.rows[row].nll = nll[row * sides];
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
