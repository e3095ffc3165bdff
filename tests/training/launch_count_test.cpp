// What a step asks of a GPU: launches, products, copies that the host waits for. docs/performance.md has the
// numbers.
#include <fstream>
#include <iostream>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/base/files.h"
#include "trainer/base/strings.h"
#include "trainer/device/target_device.h"
#include "trainer/models/load_model.h"
#include "trainer/training/prepare_model.h"
#include "trainer/training/trainer.h"
#include "trainer/training/worst_batch.h"

#include "support/launch_counter.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

struct CountedStep {
  std::string name, model;
  int64_t rows = 2, length = 2048;
  bool lora = true, recompute = false;
  double dropout = 0.0;
};

Config counted_config(const CountedStep& c) {
  Config config;
  config.training.batch_size = c.rows;
  config.data.max_length = config.data.max_source_length = config.data.max_target_length = c.length;
  config.memory.gradient_checkpointing = c.recompute;
  if (c.lora) {
    config.lora.emplace();
    config.lora->r = 16;
    config.lora->lora_alpha = 32;
    config.lora->target_modules = "all-linear";
    config.lora->lora_dropout = c.dropout;
  }
  return config;
}

// A model of configs/models with that many layers, in the encoder as well.
nlohmann::json model_config(const std::string& name, int64_t layers) {
  auto config = nlohmann::json::parse(read_file(fs::path(SOURCE_DIR) / "configs/models" / (name + ".json")));
  for (const char* key : {"num_hidden_layers", "num_layers", "num_decoder_layers"}) {
    if (config.contains(key)) config[key] = layers;
  }
  config.erase("layer_types");
  return config;
}

StepLaunches launches_of(const CountedStep& c, int64_t layers) {
  const test::TemporaryDirectory directory;
  write_atomically(directory / "config.json", model_config(c.model, layers).dump());
  const PlanningFor planning(c10::kCUDA);
  const Config config = counted_config(c);
  const std::unique_ptr<Model> model = model_on_meta(directory / ".", at::kBFloat16, !c.lora);
  prepare_for_training(*model, config, model->vocab_size(), at::kMeta);
  Trainer trainer(config, *model, at::kMeta, /*total_steps=*/1);
  const EffectiveBatch batch = worst_batch(config, model->encoder_decoder());
  LaunchCounter counter;
  trainer.step(batch);
  return counter.take();
}

struct Found {
  StepLaunches layer, rest;  // rest: of a whole step, without the layers
};

Found count_launches(const CountedStep& c) {
  const StepLaunches two = launches_of(c, 2), four = launches_of(c, 4);
  Found found;
  found.layer = {four.forward.per_layer(two.forward, 2), four.backward.per_layer(two.backward, 2)};
  const auto without = [](const LaunchCounts& all, const LaunchCounts& layer) {
    LaunchCounts twice = layer;
    twice += layer;
    return all.per_layer(twice, 1);
  };
  found.rest = {without(two.forward, found.layer.forward), without(two.backward, found.layer.backward)};
  return found;
}

void print_counts(const std::string& name, const LaunchCounts& counts) {
  std::cout << name << ": products " << counts.products << ", others " << counts.others << ", attention "
            << counts.attention << ", blocking " << counts.blocking_copies << "\n";
  for (const auto& [op, n] : counts.by_name) std::cout << "    " << op << " " << n << "\n";
}

TEST(LaunchCounts, Print) {
  for (const CountedStep& c :
       {CountedStep{"Qwen3-8B, LoRA r 16 on all linear layers, 2 x 2048", "qwen3-8b"},
        CountedStep{"FLAN-T5-XL, all weights, 8 x 512", "flan-t5-xl", 8, 512, false}}) {
    const Found found = count_launches(c);
    std::cout << c.name << "\n";
    print_counts("layer forward", found.layer.forward);
    print_counts("layer backward", found.layer.backward);
    print_counts("rest forward", found.rest.forward);
    print_counts("rest backward", found.rest.backward);
  }
}

}  // namespace
}  // namespace trainer
