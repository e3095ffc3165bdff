// Steps of several ranks and of one, on a golden's model and data.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trainer/memory/host_allocator.h"
#include "trainer/training/trainer.h"

#include "models/golden.h"
#include "support/in_ranks.h"

namespace trainer {

using Tensors = std::map<std::string, at::Tensor>;

struct After {
  Tensors weights;  // trained ones; of several ranks each has those that are divided, too
  std::vector<double> losses, norms;
  std::vector<int64_t> exchanged;
  int64_t state_bytes = 0, retries = 0, sent_bytes = 0;
};

// What is trained: a golden, or what is left of it when it is quantised.
struct GoldenRun {
  GoldenRun(const char* golden) : name(golden) {}             // NOLINT(google-explicit-constructor)
  GoldenRun(std::string golden) : name(std::move(golden)) {}  // NOLINT(google-explicit-constructor)
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::optional<Quantisation> quantise = std::nullopt;
  std::string form = "model";                              // the golden's directory
  std::function<float(size_t)> weight_of_label = nullptr;  // in the loss, by the label's place in its sample
  bool taught = false;                                     // by a teacher that names three tokens at a place
};

inline Config config_of_ranks(Shard shard) {
  Config config;
  config.optimizer.learning_rate = 3e-4;  // larger ones amplify the rounding of the first steps
  config.optimizer.adam_epsilon = 1e-5;  // at 1e-8 a first update is a gradient's sign, also of mere rounding
  config.optimizer.lr_scheduler_type = SchedulerType::constant;
  config.training.batch_size = 2;
  config.parallel.shard = shard;
  return config;
}

// The batches of six steps: every third one has only two samples, so that some ranks have none.
inline EffectiveBatch batch_of_step(const Golden& golden, int64_t step, const Ranks& ranks) {
  EffectiveBatch batch = golden.batch;
  if (step % 3 == 2) batch.samples.resize(2);
  batch.supervised_tokens = 0;
  for (const Sample& sample : batch.samples)
    batch.supervised_tokens += supervised_tokens(sample, golden.model->encoder_decoder());
  batch.share = {ranks.rank(), ranks.count()};
  return batch;
}

inline TeacherTokens three_tokens(const Sample& sample, bool encoder_decoder) {
  TeacherTokens teacher{.top = 3};
  for (size_t i = encoder_decoder ? 0 : 1; i < sample.labels.size(); i++) {
    if (sample.labels[i] == kIgnore) continue;
    const int32_t label = sample.labels[i];
    teacher.ids.insert(teacher.ids.end(), {label, label > 20 ? 3 : 30, 4});
    teacher.log_probs.insert(teacher.log_probs.end(),
                             {-0.9F, -1.2F - 0.1F * static_cast<float>(i % 5), -2.0F});
  }
  return teacher;
}

inline Golden golden_of(const GoldenRun& run, const Config& config, const Ranks& ranks) {
  const bool divides = config.parallel.shard == Shard::all;
  Golden golden(run.name, run.dtype, run.quantise, run.form, divides ? ranks.rank() : 0,
                divides ? ranks.count() : 1);
  for (Sample& sample : golden.batch.samples)
    if (run.taught) sample.teacher = three_tokens(sample, golden.model->encoder_decoder());
  if (run.weight_of_label == nullptr) return golden;
  for (Sample& sample : golden.batch.samples) {
    for (size_t i = 0; i < sample.labels.size(); i++) sample.weights.push_back(run.weight_of_label(i));
  }
  return golden;
}

// fail_at: which allocation of the fourth step fails, counted over all ranks.
inline After six_steps(const GoldenRun& run, const Config& config, const Ranks& ranks, int64_t fail_at = 0) {
  const Golden golden = golden_of(run, config, ranks);
  if (golden.model->has_dropout()) golden.model->set_dropout(0.1);
  Trainer trainer(config, *golden.model, at::kCPU, 10, make_optimizer, ranks);
  After after;
  for (int64_t step = 0; step < 6; step++) {
    if (step == 3 && ranks.is_first()) fail_host_allocation(fail_at);
    const StepResult result = trainer.step(batch_of_step(golden, step, ranks));
    if (step == 3 && ranks.is_first()) fail_host_allocation(0);
    after.losses.push_back(result.loss);
    after.norms.push_back(result.grad_norm);
    after.exchanged.push_back(result.bytes_exchanged);
    after.retries += result.retries;
  }
  golden.model->for_each_parameter([&](const std::string& parameter, Parameter& p) {
    if (p.trained() && !p.value.is_of_other_rank())
      after.weights[parameter] = p.value.tensor().detach().clone();
  });
  for (const auto& [parameter, kept] : trainer.optimizer_state().tensors) {
    for (const auto& [what, tensor] : kept) after.state_bytes += static_cast<int64_t>(tensor.nbytes());
  }
  after.sent_bytes = ranks.bytes_given();
  return after;
}

inline std::vector<After> on_ranks(int64_t count, const GoldenRun& run, const Config& config,
                                   int64_t fail_at = 0) {
  std::vector<After> all(static_cast<size_t>(count));
  in_ranks(count, [&](const Ranks& ranks) {
    all[static_cast<size_t>(ranks.rank())] = six_steps(run, config, ranks, fail_at);
  });
  Tensors together;
  for (const After& rank : all) together.insert(rank.weights.begin(), rank.weights.end());
  for (After& rank : all) rank.weights.insert(together.begin(), together.end());
  return all;
}

inline double distance(const Tensors& a, const Tensors& b) {
  double squares = 0, total = 0;
  for (const auto& [name, tensor] : a) {
    squares += (tensor.to(at::kDouble) - b.at(name).to(at::kDouble)).square().sum().item<double>();
    total += tensor.to(at::kDouble).square().sum().item<double>();
  }
  return std::sqrt(squares / total);
}

inline void expect_same_bits(const After& a, const After& b) {
  EXPECT_EQ(a.losses, b.losses);
  ASSERT_EQ(a.weights.size(), b.weights.size());
  for (const auto& [name, tensor] : a.weights) EXPECT_TRUE(tensor.equal(b.weights.at(name))) << name;
}

inline void expect_updates_of_one(const After& one, const std::vector<After>& many) {
  for (const After& rank : many) {
    expect_same_bits(many.front(), rank);
    EXPECT_LE(distance(one.weights, rank.weights), 1e-6);
    for (size_t step = 0; step < one.losses.size(); step++) {
      EXPECT_NEAR(rank.losses[step], one.losses[step], 1e-6 * one.losses[step]) << step;
      EXPECT_NEAR(rank.norms[step], one.norms[step], 2e-6 * one.norms[step]) << step;
    }
  }
}

}  // namespace trainer
