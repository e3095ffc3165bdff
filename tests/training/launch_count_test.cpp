// What a step asks of a GPU: launches, products, copies that the host waits for. docs/performance.md has the
// numbers.
#include <cmath>
#include <optional>
#include <regex>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/base/files.h"
#include "trainer/base/strings.h"
#include "trainer/models/load_model.h"
#include "trainer/optim/gradients.h"
#include "trainer/training/evaluate.h"
#include "trainer/training/trainer.h"
#include "trainer/training/worst_batch.h"

#include "device/target_device.h"
#include "support/launch_counter.h"
#include "training/counted_models.h"
#include "training/prepare_model.h"
#include "weights/fp8_products.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

struct CountedStep {
  std::string name, model;
  int64_t rows = 2, length = 2048;
  bool lora = true;
  Recompute recompute = false;
  double dropout = 0.0;
  bool nf4 = false, widen_once = false;
  bool fp8 = false;
  bool recurrent = false;  // the third layer is recurrent, as the first two are; others are not all alike
};

// docs/performance.md lists these.
const std::vector<CountedStep>& counted_steps() {
  static const std::vector<CountedStep> steps{
      {"Qwen3-8B, LoRA, 2 x 2048", "qwen3-8b"},
      {"the same, light", "qwen3-8b", 2, 2048, true, Recompute::light()},
      {"the same, recomputed", "qwen3-8b", 2, 2048, true, true},
      {"Qwen3-8B, FP8 and LoRA, 2 x 2048", "qwen3-8b", 2, 2048, true, false, 0.0, false, false, true},
      {"the same in FP8, recomputed", "qwen3-8b", 2, 2048, true, true, 0.0, false, false, true},
      {"Llama-3.1-8B, LoRA, dropout 0.05, 2 x 2048", "llama-3.1-8b", 2, 2048, true, false, 0.05},
      {"Qwen2.5-7B, NF4 and LoRA, 2 x 1024, recomputed", "qwen2.5-7b", 2, 1024, true, true, 0.0, true},
      {"the same, weights widened once", "qwen2.5-7b", 2, 1024, true, true, 0.0, true, true},
      {"Qwen2.5-0.5B, all weights, 4 x 1024", "qwen2.5-0.5b", 4, 1024, false},
      {"Qwen3-0.6B, LoRA, 2 x 2048", "qwen3-0.6b"},
      {"Qwen3.5-0.8B, LoRA, 2 x 2048, a recurrent layer", "qwen3.5-0.8b", 2, 2048, true, false, 0.0, false,
       false, false, true},
      {"FLAN-T5-XL, LoRA, 8 x 512 and 512", "flan-t5-xl", 8, 512},
      {"FLAN-T5-XL, all weights, 8 x 512 and 512", "flan-t5-xl", 8, 512, false},
  };
  return steps;
}

Config counted_config(const CountedStep& c) {
  Config config;
  config.training.batch_size = c.rows;
  config.data.max_length = config.data.max_source_length = config.data.max_target_length = c.length;
  config.memory.gradient_checkpointing = c.recompute;
  config.memory.widen_once = c.widen_once;
  if (c.lora) {
    config.lora.emplace();
    config.lora->r = 16;
    config.lora->lora_alpha = 32;
    config.lora->target_modules = "all-linear";
    config.lora->lora_dropout = c.dropout;
  }
  return config;
}

// Of the second step on a model with that many layers; for T5: in the encoder and in the decoder. The first
// step copies tables that stay, and packs adapters group by group.
StepLaunches launches_of(const CountedStep& c, int64_t layers, int64_t micro_batches = 1) {
  const PlanningFor planning(c10::kCUDA);
  const Fp8ProductsInTests products;
  Config config = counted_config(c);
  config.training.effective_batch_size = c.rows * micro_batches;
  std::optional<Quantisation> quantise;
  if (c.nf4) quantise.emplace();
  if (c.fp8) quantise = Quantisation{.format = "fp8"};
  const std::unique_ptr<Model> model = test::counted_model(c.model, layers, !c.lora, quantise);
  settle_packing(config, *model, c10::kCUDA);
  prepare_for_training(*model, config, model->vocab_size(), at::kMeta);
  Trainer trainer(config, *model, at::kMeta, /*total_steps=*/1);
  const EffectiveBatch batch = worst_batch(config, model->encoder_decoder());
  trainer.step(batch);
  LaunchCounter counter;
  trainer.step(batch);
  return counter.take();
}

struct CountedLaunches {
  LaunchCounts forward, backward;  // of one layer
  LaunchCounts step;               // of a whole step
};

// Of a model whose layers are of two kinds; a layer is a recurrent one.
CountedLaunches count_recurrent_launches(const CountedStep& c) {
  const StepLaunches two = launches_of(c, 2), three = launches_of(c, 3),
                     all = launches_of(c, test::layers_of(test::model_card(c.model)));
  CountedLaunches found;
  found.forward = three.forward.per_layer(two.forward, 1);
  found.backward = three.backward.per_layer(two.backward, 1);
  found.step = all.forward;
  found.step += all.backward;
  return found;
}

CountedLaunches count_launches(const CountedStep& c) {
  if (c.recurrent) return count_recurrent_launches(c);
  const StepLaunches two = launches_of(c, 2), four = launches_of(c, 4);
  CountedLaunches found;
  found.forward = four.forward.per_layer(two.forward, 2);
  found.backward = four.backward.per_layer(two.backward, 2);
  found.step = two.forward;
  found.step += two.backward;
  for (int64_t layer = 2; layer < test::layers_of(test::model_card(c.model)); layer++) {
    found.step += found.forward;
    found.step += found.backward;
  }
  return found;
}

std::string text_of(const CountedStep& c, const CountedLaunches& found) {
  const auto numbers = [](const LaunchCounts& counts) {
    return concat(counts.products, " + ", counts.others);
  };
  const int64_t moved = found.step.bytes / 1'000'000'000;
  std::string text = concat("| ", c.name, " | ", numbers(found.forward), " | ", numbers(found.backward),
                            " | ", numbers(found.step), " | ", moved, " GB |");
  for (size_t card = 0; card < kCards.size(); card++) {
    const double seconds = found.step.seconds[card];
    text += concat(" ", std::lround(seconds * 1e3), " ms, ",
                   std::lround(static_cast<double>(c.rows * c.length) / seconds / 100) * 100, " |");
  }
  return text;
}

std::string listed(const LaunchCounts& counts) {
  std::string out;
  for (const auto& [name, count] : counts.by_name) out += concat("  ", count, " ", name, "\n");
  return out;
}

TEST(LaunchCounts, AreThoseOfTheDocumentation) {
  const std::string documented = read_file(fs::path(SOURCE_DIR) / "docs/performance.md");
  for (const CountedStep& c : counted_steps()) {
    const CountedLaunches found = count_launches(c);
    const std::string text = text_of(c, found);
    EXPECT_NE(documented.find(text), std::string::npos) << "docs/performance.md does not say\n"
                                                        << text << "\nforward:\n"
                                                        << listed(found.forward) << "backward:\n"
                                                        << listed(found.backward);
  }
}

TEST(LaunchCounts, OfTheHostAreThoseOfTheDocumentation) {
  const std::string documented = read_file(fs::path(SOURCE_DIR) / "docs/performance.md");
  for (const size_t i : {0, 9, 11}) {
    const CountedStep& c = counted_steps()[i];
    const LaunchCounts step = count_launches(c).step;
    const std::regex row(concat("\\| ", c.name, " \\| ", step.views, "( \\(\\d+\\))? \\| ", step.allocations,
                                " \\| ", step.nodes, "( \\(\\d+\\))? \\|"));
    EXPECT_TRUE(std::regex_search(documented, row))
        << "docs/performance.md does not say\n"
        << c.name << ": " << step.views << " views, " << step.allocations << " allocations, " << step.nodes
        << " nodes";
  }
}

TEST(LaunchCounts, OfALayerWithAdaptersAreFew) {
  const CountedLaunches found = count_launches(counted_steps()[0]);
  EXPECT_LE(found.forward.others + found.backward.others, 60);
  EXPECT_LE(found.forward.products, 7 + 2 * 4) << "two more for each of the four groups of adapters";
}

// What a layer takes in the second micro-batch of an update: its adapters are packed, and their gradients are
// added group by group. With NF4 here, those of gate and up are not small beside 2,048 tokens; of a recurrent
// model, layers are not all alike.
TEST(LaunchCounts, OfAFurtherMicroBatchHaveNoPackingAndFewAdditions) {
  for (const CountedStep& c : counted_steps()) {
    if (c.nf4 || c.recurrent) continue;
    const auto further = [&](int64_t layers, bool backward) {
      const StepLaunches two = launches_of(c, layers, 2), one = launches_of(c, layers, 1);
      return backward ? two.backward.per_layer(one.backward, 1) : two.forward.per_layer(one.forward, 1);
    };
    LaunchCounts forward = further(4, false).per_layer(further(2, false), 2),
                 backward = further(4, true).per_layer(further(2, true), 2);
    EXPECT_EQ(forward.by_name["pack_adapters"] + backward.by_name["pack_adapters"], 0) << c.name;
    EXPECT_EQ(forward.by_name["pack_all_adapters"], 0) << c.name;
    if (!c.lora) continue;
    const CountedLaunches first = count_launches(c);
    EXPECT_EQ(backward.products, first.backward.products) << c.name;
    EXPECT_EQ(backward.others, first.backward.others + (c.model == "flan-t5-xl" ? 11 : 4)) << c.name;
    EXPECT_EQ(backward.by_name["add_tensors"], c.model == "flan-t5-xl" ? 11 : 4) << c.name;
  }
}

TEST(LaunchCounts, OfAStepHaveNoCopyThatTheHostWaitsFor) {
  for (const CountedStep& c : counted_steps()) EXPECT_EQ(count_launches(c).step.blocking_copies, 0) << c.name;
}

}  // namespace
}  // namespace trainer
