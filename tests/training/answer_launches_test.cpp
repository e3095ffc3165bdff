// What a step of an answer asks of a GPU. docs/performance.md has the numbers.
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "trainer/base/files.h"
#include "trainer/base/strings.h"
#include "trainer/data/batching.h"

#include "device/target_device.h"
#include "support/launch_counter.h"
#include "training/counted_models.h"

namespace trainer {
namespace {

struct CountedAnswer {
  std::string name, model;
  int64_t rows = 1;
  bool nf4 = false;
};

// docs/performance.md lists these.
const std::vector<CountedAnswer>& counted_answers() {
  static const std::vector<CountedAnswer> answers{
      {"Qwen3-8B, one prompt", "qwen3-8b"},
      {"Qwen3-8B, 32 prompts", "qwen3-8b", 32},
      {"Qwen2.5-7B, NF4, one prompt", "qwen2.5-7b", 1, true},
      {"FLAN-T5-XL, 32 sources", "flan-t5-xl", 32},
  };
  return answers;
}

// Of the second token after prompts or sources of 512.
LaunchCounts launches_of_a_step(const CountedAnswer& c, int64_t layers) {
  const PlanningFor planning(c10::kCUDA);
  const at::NoGradGuard no_grad;
  const auto model = test::counted_model(c.model, layers, /*train_all=*/false,
                                         c.nf4 ? std::optional(Quantisation{}) : std::nullopt);
  EffectiveBatch batch;
  std::vector<int64_t> slots;
  for (int64_t row = 0; row < c.rows; row++) {
    slots.push_back(row);
    batch.samples.push_back({std::vector<int32_t>(512, 5), {}});
  }
  const auto generation = model->generate(at::kMeta);
  generation->add(collate(batch, slots, model->collate_options(), at::kMeta));
  const at::Tensor tokens = at::zeros({c.rows}, at::TensorOptions().device(at::kMeta).dtype(at::kLong));
  generation->next(tokens);
  LaunchCounter counter;
  generation->next(tokens);
  return counter.take().forward;
}

TEST(AnswerLaunches, AreThoseOfTheDocumentation) {
  const std::string documented = read_file(std::filesystem::path(SOURCE_DIR) / "docs/performance.md");
  for (const CountedAnswer& c : counted_answers()) {
    const int64_t layers = test::layers_of(test::model_card(c.model));
    const LaunchCounts two = launches_of_a_step(c, 2), layer = launches_of_a_step(c, 4).per_layer(two, 2);
    LaunchCounts step = two;
    for (int64_t i = 2; i < layers; i++) step += layer;
    EXPECT_EQ(step.blocking_copies, 0) << c.name;
    std::string text =
        concat("| ", c.name, " | ", layer.products, " + ", layer.others, " | ", step.products, " + ",
               step.others, " | ", std::lround(static_cast<double>(step.bytes) / 1e8) / 10.0, " GB |");
    for (const double seconds : step.seconds)
      text += concat(" ", std::lround(static_cast<double>(c.rows) / seconds), " |");
    std::string listed;
    for (const auto& [name, count] : layer.by_name) listed += concat("  ", count, " ", name, "\n");
    EXPECT_NE(documented.find(text), std::string::npos) << "docs/performance.md does not say\n"
                                                        << text << "\na layer:\n"
                                                        << listed;
  }
}

}  // namespace
}  // namespace trainer
