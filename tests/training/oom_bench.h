// A tiny model with its trainer, for tests of steps that run out of memory.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainer/training/trainer.h"

#include "models/golden.h"

namespace trainer::oom {

struct Case {
  std::string model;
  bool lora, recompute, packing = false;
  bool offload = false, copies = false;  // copies: as on a GPU
  at::ScalarType type = at::kFloat;
};

inline std::string name_of(const Case& c) {
  return c.model + (c.lora ? "_lora" : "_full") + (c.recompute ? "_recomputed" : "_kept") +
         (c.packing ? "_packed" : "") + (c.offload ? "_offloaded" : "") + (c.copies ? "_copied" : "");
}

inline Config config_of(const Case& c) {
  Config config;
  config.optimizer.learning_rate = 1e-3;
  config.optimizer.lr_scheduler_type = SchedulerType::constant;
  config.training.batch_size = 5;
  config.training.max_grad_norm = 1.0;
  config.data.max_source_length = config.data.max_target_length = config.data.max_length = 32;
  config.memory.gradient_checkpointing = c.recompute;
  config.data.packing = c.packing;
  config.recovery.grow_after = 0;
  config.memory.offload = {.optimizer = c.offload, .weights = c.offload, .activations = c.offload};
  return config;
}

// A tiny model with dropout and its trainer; two of the same case are equal.
struct Bench {
  explicit Bench(const Case& c, const std::function<void(Config&)>& change = {}) : config(config_of(c)) {
    if (change) change(config);
    model = load_model(golden_directory(c.model) / "model",
                       {at::kCPU, c.type, /*train_all=*/!c.lora, std::nullopt, c.offload});
    if (model->has_dropout()) model->set_dropout(0.1);
    if (c.lora) {
      LoraConfig lora;
      lora.r = 4;
      lora.lora_dropout = 0.1;
      lora.target_modules = "all-linear";
      apply_lora(*model, lora, 1, at::kCPU);
    }
    trainer.emplace(config, *model, at::kCPU, 1 << 30);
    trainer->on_recovery([this](const Recovery& recovery) { recoveries.push_back(recovery); });
  }

  void start_at_full_size() {
    trainer->budgets() = {};
    recoveries.clear();
  }
  std::set<std::string> stages() const {
    std::set<std::string> out;
    for (const Recovery& recovery : recoveries) out.insert(recovery.stage);
    return out;
  }

  Config config;
  std::unique_ptr<Model> model;
  std::optional<Trainer> trainer;
  std::vector<Recovery> recoveries;
};

inline void expect_same_weights(const Bench& a, const Bench& b, int64_t n) {
  const auto &first = a.trainer->parameters(), &second = b.trainer->parameters();
  for (size_t i = 0; i < first.size(); i++) {
    ASSERT_TRUE(first[i].value.equal(second[i].value)) << first[i].name << ", allocation " << n;
  }
}

}  // namespace trainer::oom
