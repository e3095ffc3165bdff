#include "training/evaluate_labels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/data/step_loader.h"

#include "base/progress.h"
#include "nn/score_head.h"
#include "objectives/objective.h"
#include "training/placement.h"
#include "training/step_of_vectors.h"

namespace trainer {

std::vector<std::vector<double>> scores_of_split(const ScorePass& pass, const EffectiveBatch& batch,
                                                 const MicroBatchSplit& split, PassProgress& at) {
  std::vector<std::vector<double>> found(batch.samples.size());
  at = {0, "forward"};
  for (; at.micro_batch < split.micro_batches.size(); at.micro_batch++) {
    if (pass.before_each) pass.before_each();
    const std::vector<int64_t>& slots = split.micro_batches[at.micro_batch];
    const MicroBatch micro =
        collate(batch, slots, collate_options(pass.config, pass.model, pass.random_key), pass.device);
    if (micro.supervised_labels.numel() == 0) continue;
    const at::Tensor scores = pass.model.head().logits(pass.model.supervised_states(micro, pass.context));
    if (scores.is_meta()) continue;
    const at::Tensor values = scores.to(at::kCPU, at::kDouble).contiguous();
    const double* next = values.const_data_ptr<double>();
    for (const int64_t slot : slots) {
      const auto at_slot = static_cast<size_t>(slot);
      const int64_t count = values.size(1) * supervised_tokens(batch.samples[at_slot], split.encoder_decoder);
      found[at_slot].assign(next, next + count);
      next += count;
    }
  }
  return found;
}

std::vector<std::vector<double>> of_all_ranks(const Ranks& ranks,
                                              const std::vector<std::vector<double>>& by_slot) {
  if (ranks.alone()) return by_slot;
  size_t size = 0;
  for (const std::vector<double>& values : by_slot) size = std::max(size, values.size());
  const std::vector<std::string> sizes = ranks.all_gather(std::to_string(size), Channel::phases);
  for (const std::string& other : sizes) size = std::max<size_t>(size, std::stoul(other));
  std::vector<double> flat(by_slot.size() * size, 0.0);
  for (size_t slot = 0; slot < by_slot.size(); slot++)
    std::ranges::copy(by_slot[slot], flat.begin() + static_cast<std::ptrdiff_t>(slot * size));
  flat = all_reduce(ranks, flat, Channel::phases);
  std::vector<std::vector<double>> all;
  for (size_t begin = 0; begin < flat.size(); begin += size)
    all.emplace_back(flat.begin() + static_cast<std::ptrdiff_t>(begin),
                     flat.begin() + static_cast<std::ptrdiff_t>(begin + size));
  return all;
}

ScorePasses::ScorePasses(const Model& model, const Config& config, at::Device device, BatchBudget& budget,
                         const RecoveryListener& listener, const std::function<void()>& between)
    : pass_{model, config, device, {}, 0, between}, splits_(model, config, device, budget, listener) {}

std::vector<std::vector<double>> ScorePasses::scores(const EffectiveBatch& batch) {
  const at::NoGradGuard no_grad;
  return splits_.run(batch, [&](const MicroBatchSplit& split, PassProgress& at) {
    return scores_of_split(pass_, batch, split, at);
  });
}

std::vector<double> probabilities_of(const std::vector<double>& outputs) {
  std::vector<double> shares;
  const double most = std::ranges::max(outputs);
  double sum = 0;
  for (const double output : outputs) sum += shares.emplace_back(std::exp(output - most));
  for (double& share : shares) share /= sum;
  return shares;
}

Confusion confusion_of(const std::vector<std::string>& classes, std::vector<std::vector<int64_t>> rows) {
  const size_t count = classes.size();
  Confusion out{classes, std::move(rows), {}};
  for (size_t at = 0; at < count; at++) {
    int64_t of_label = 0, predicted = 0;
    for (size_t other = 0; other < count; other++) {
      of_label += out.rows[at][other];
      predicted += out.rows[other][at];
    }
    const int64_t both = of_label + predicted;
    out.f1.push_back(both > 0 ? 2 * static_cast<double>(out.rows[at][at]) / static_cast<double>(both) : 0);
  }
  return out;
}

double macro_f1(const Confusion& confusion) {
  double sum = 0, seen = 0;
  for (size_t at = 0; at < confusion.f1.size(); at++) {
    const bool occurs = std::ranges::any_of(confusion.rows[at], [](int64_t rows) { return rows > 0; }) ||
                        std::ranges::any_of(confusion.rows, [&](const auto& row) { return row[at] > 0; });
    if (!occurs) continue;
    sum += confusion.f1[at];
    seen++;
  }
  return seen > 0 ? sum / seen : 0;
}

double pearson(const std::vector<double>& a, const std::vector<double>& b) {
  const auto mean = [](const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / static_cast<double>(values.size());
  };
  if (a.empty()) return 0;
  const double mean_a = mean(a), mean_b = mean(b);
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); i++) {
    ab += (a[i] - mean_a) * (b[i] - mean_b);
    aa += (a[i] - mean_a) * (a[i] - mean_a);
    bb += (b[i] - mean_b) * (b[i] - mean_b);
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0;
}

namespace {

std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  for (size_t i = 0; i < order.size(); i++) order[i] = i;
  std::ranges::sort(order, {}, [&](size_t i) { return values[i]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && values[order[end]] == values[order[begin]]) end++;
    for (size_t i = begin; i < end; i++) ranks[order[i]] = static_cast<double>(begin + end - 1) / 2;
  }
  return ranks;
}

constexpr size_t kLoss = 0, kWeight = 1, kCounts = 2;  // sums of classes; then the confusion, row by row

// Adds a row's labels, of which each has as many outputs as there are classes.
void add_classes(const std::vector<double>& scores, const Sample& sample, size_t classes,
                 std::vector<double>& sums) {
  auto next = scores.begin();
  for (size_t i = 0; i < sample.labels.size() && next != scores.end(); i++) {
    if (sample.labels[i] == kIgnore) continue;
    const std::vector<double> outputs(next, next + static_cast<std::ptrdiff_t>(classes));
    next += static_cast<std::ptrdiff_t>(classes);
    const auto label = static_cast<size_t>(sample.labels[i]);
    const double weight = sample.weights.empty() ? 1.0 : static_cast<double>(sample.weights[i]);
    const auto predicted = static_cast<size_t>(std::ranges::max_element(outputs) - outputs.begin());
    sums[kLoss] -= weight * std::log(probabilities_of(outputs).at(label));
    sums[kWeight] += weight;
    sums[kCounts + label * classes + predicted]++;
  }
}

EvaluationResult result_of_classes(const std::vector<double>& sums, const std::vector<std::string>& classes) {
  EvaluationResult result;
  std::vector<std::vector<int64_t>> rows;
  double right = 0;
  for (size_t label = 0; label < classes.size(); label++) {
    std::vector<int64_t>& row = rows.emplace_back();
    for (size_t at = 0; at < classes.size(); at++)
      row.push_back(std::llround(sums[kCounts + label * classes.size() + at]));
    right += static_cast<double>(row[label]);
    for (const int64_t count : row) result.supervised_tokens += count;
  }
  result.confusion = confusion_of(classes, std::move(rows));
  result.loss = mean_of(sums[kLoss], sums[kWeight]);
  result.terms = {{"accuracy", mean_of(right, static_cast<double>(result.supervised_tokens))},
                  {"f1", macro_f1(*result.confusion)}};
  return result;
}

// What is known of a row, so that ranks can add them up: each row is one rank's.
struct NumberOfRow {
  enum Value : size_t { counts, wanted, found, weight, values };
};

EvaluationResult result_of_numbers(const std::vector<double>& rows) {
  EvaluationResult result;
  double loss = 0, weight = 0, apart = 0;
  std::vector<double> wanted, found;
  for (size_t at = 0; at < rows.size(); at += NumberOfRow::values) {
    const double* row = rows.data() + at;
    if (row[NumberOfRow::counts] == 0) continue;
    wanted.push_back(row[NumberOfRow::wanted]);
    found.push_back(row[NumberOfRow::found]);
    const double off = found.back() - wanted.back();
    loss += row[NumberOfRow::weight] * off * off;
    weight += row[NumberOfRow::weight];
    apart += std::abs(off);
  }
  result.supervised_tokens = std::ssize(wanted);
  result.loss = mean_of(loss, weight);
  result.terms = {{"mae", mean_of(apart, static_cast<double>(wanted.size()))},
                  {"pearson", pearson(wanted, found)},
                  {"spearman", spearman(wanted, found)}};
  return result;
}

void add_number(const std::vector<double>& scores, const Sample& sample, double* row) {
  row[NumberOfRow::counts] = 1;
  row[NumberOfRow::wanted] = static_cast<double>(std::bit_cast<float>(sample.labels.back()));
  row[NumberOfRow::found] = scores.front();
  row[NumberOfRow::weight] = sample.weights.empty() ? 1.0 : static_cast<double>(sample.weights.back());
}

}  // namespace

double spearman(const std::vector<double>& a, const std::vector<double>& b) {
  return pearson(ranks_of(a), ranks_of(b));
}

EvaluationResult evaluate_labels(Model& model, const Dataset& dataset, const Config& config,
                                 at::Device device, BatchBudget& budget, const RecoveryListener& listener,
                                 const std::function<void()>& between, const Ranks& ranks) {
  const bool numbers = config.objective.row_score() == RowScore::number;
  const std::vector<std::string> classes = dataset.labels().classes;
  const ScoreHeadFacts& head = model.head().scores()->facts();
  if (head.numbers != numbers || (!numbers && head.outputs != std::ssize(classes)))
    throw ConfigError(concat("objective.name: ", config.objective.name,
                             ": this model's head gives something else; train one for these labels"));
  std::vector<double> values(numbers ? static_cast<size_t>(dataset.size()) * NumberOfRow::values
                                     : kCounts + classes.size() * classes.size(),
                             0.0);
  const int64_t group = 16 * config.eval_batch_size();
  Progress shown("samples", dataset.size());
  run_on_all_ranks(
      model, ranks,
      [&] {
        ScorePasses passes(model, config, device, budget, listener, between);
        StepLoader loader(dataset, groups_of(0, dataset.size(), group),
                          {config.training.num_workers, config.data.prefetch, {ranks.rank(), ranks.count()}});
        for (int64_t first = 0; first < dataset.size(); first += group) {
          shown.set(first);
          const EffectiveBatch batch = loader.next();
          const std::vector<std::vector<double>> found = passes.scores(batch);
          for (size_t slot = 0; slot < found.size(); slot++) {
            if (found[slot].empty()) continue;
            const size_t row = static_cast<size_t>(first) + slot;
            if (numbers) {
              add_number(found[slot], batch.samples[slot], values.data() + row * NumberOfRow::values);
            } else {
              add_classes(found[slot], batch.samples[slot], classes.size(), values);
            }
          }
        }
      },
      Channel::phases);
  const std::vector<double> all = all_reduce(ranks, values, Channel::phases);
  EvaluationResult result = numbers ? result_of_numbers(all) : result_of_classes(all, classes);
  result.of_tokens = false;
  result.samples = dataset.size();
  return result;
}

EvaluationResult evaluate_vectors(Model& model, const Dataset& dataset, const Config& config,
                                  at::Device device, BatchBudget& budget, const RecoveryListener& listener,
                                  const std::function<void()>& between, const Ranks& ranks) {
  const int64_t group = std::max<int64_t>(config.effective_batch_size(), 2);
  EvaluationResult result{.samples = dataset.size(), .supervised_tokens = dataset.size()};
  result.of_tokens = false;
  Means sums;
  Progress shown("samples", dataset.size());
  ScorePasses passes(model, config, device, budget, listener, between);
  StepLoader loader(dataset, groups_of(0, dataset.size(), group),
                    {config.training.num_workers, config.data.prefetch, {ranks.rank(), ranks.count()}});
  for (int64_t first = 0; first < dataset.size(); first += group) {
    shown.set(first);
    const EffectiveBatch batch = loader.next();
    std::vector<std::vector<double>> found;
    run_on_all_ranks(
        model, ranks, [&] { found = passes.scores(batch); }, Channel::phases);
    StepOfVectors step(config.objective.similarity_scale, batch);
    step.compare(of_all_ranks(ranks, found));
    if (sums.empty()) sums = {{"loss", 0.0}, {"accuracy", 0.0}, {"similarity", 0.0}};
    for (size_t term = 0; term < sums.size(); term++)
      sums[term].second += step.means()[term].second * static_cast<double>(batch.rows());
  }
  for (auto& [name, sum] : sums) sum /= static_cast<double>(dataset.size());
  result.loss = sums.front().second;
  result.terms.assign(sums.begin() + 1, sums.end());
  return result;
}

}  // namespace trainer
