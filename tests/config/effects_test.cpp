// Keys that have no effect beside the values of others: all that are declared, wherever they stand.
#include "config/effects.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/config/load.h"

#include "config/schema.h"
#include "config/value.h"
#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using config::Condition;
using config::Idle;
using config::Key;
using config::State;
using test::contains;

using Values = std::map<std::string, std::string>;  // key -> its value

// With what a value of another key needs: distill a teacher, in one of two ways.
Values complete(Values values) {
  const auto name = values.find("objective.name");
  if (name != values.end() && name->second == "distill" && !values.contains("objective.teacher"))
    values.emplace("objective.logits", "x");
  return values;
}

std::vector<std::string> as_overrides(const Values& values) {
  std::vector<std::string> overrides;
  for (const auto& [key, value] : complete(values)) overrides.push_back(key + "=" + value);
  return overrides;
}

std::string as_file(const Values& values) {
  std::map<std::string, std::string> sections;
  std::string top;
  for (const auto& [key, value] : complete(values)) {
    const size_t dot = key.find('.');
    const std::string text = value.empty() ? "\"\"" : value;
    if (dot == std::string::npos)
      top += key + ": " + text + "\n";
    else
      sections[key.substr(0, dot)] += "  " + key.substr(dot + 1) + ": " + text + "\n";
  }
  for (const auto& [section, lines] : sections) top += section + ":\n" + lines;
  return top;
}

bool loads(const Values& values) {
  try {
    static_cast<void>(load_config(std::nullopt, as_overrides(values)));
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

// Values to try: the keys of the schema need no more.
std::vector<std::string> candidates(const std::string& name) {
  std::vector<std::string> values;
  if (name == "lora") return {"{}", "null"};
  const Key& key = *config::find_key(name);
  if (const std::string standard = config::default_as_yaml(key);
      standard != "null" && key.default_word.empty())
    values = {standard};
  values.insert(values.end(), key.choices.begin(), key.choices.end());
  for (const char* value : {"true", "false", "0", "1", "20", "0.5", "x", "cpu", "auto", "never", "null"})
    values.emplace_back(value);
  return values;
}

Values enabled(const std::string& name);

// Adds a value with which the state holds, or does not.
void add(const State& state, bool holds, Values& values) {
  Values base = state.key == "lora" ? Values{} : enabled(state.key);
  for (const std::string& value : candidates(state.key)) {
    Values tried = base;
    tried[state.key] = value;
    if (!loads(tried)) continue;
    const Config config = load_config(std::nullopt, as_overrides(tried));
    const bool has = std::ranges::any_of(
        state.values, [&](const std::string& one) { return config::has_value(config, state.key, one); });
    if ((has == state.among) != holds) continue;
    for (const auto& [key, its] : tried) values.emplace(key, its);
    return;
  }
  FAIL() << "no value for " << state.key;
}

// The values of other keys with which a key has an effect.
Values enabled(const std::string& name) {
  Values values;
  for (const Condition& condition : config::find_key(name)->conditions)
    add(condition.states.front(), false, values);
  return values;
}

std::string some_value(const std::string& name, const Values& beside) {
  for (const std::string& value : candidates(name)) {
    Values tried = beside;
    tried[name] = value;
    if (loads(tried)) return value;
  }
  ADD_FAILURE() << "no value for " << name;
  return "";
}

template <class Use>
void for_each_key(const Use& use) {
  for (const config::Section& section : config::schema()) {
    for (const Key& key : section.keys) {
      SCOPED_TRACE(key.full_name());
      use(key);
    }
  }
}

std::vector<std::string> named(const Config& config) {
  std::vector<std::string> keys;
  for (const IdleKey& key : keys_without_effect(config)) keys.push_back(key.key);
  return keys;
}

class Effects : public ::testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ / name) << text;
    return directory_ / name;
  }
  std::string message(const std::string& text, const std::vector<std::string>& overrides = {}) {
    return test::error_message<ConfigError>([&] { load_config(write("my.yaml", text), overrides); });
  }

  // Checks what is said of the key where the condition holds: on the command line, and in a file.
  void expect_said(const Key& key, const Condition& condition, const Values& values) {
    const std::string name = key.full_name(), override_text = "override '" + name + "=";
    const fs::path file = write("whole.yaml", as_file(values));
    if (condition.idle == Idle::is_named) {
      for (const Config& config : {load_config(std::nullopt, as_overrides(values)), load_config(file, {})}) {
        const std::vector<IdleKey> idle = keys_without_effect(config);
        const auto found = std::ranges::find(idle, name, &IdleKey::key);
        ASSERT_NE(found, idle.end());
        EXPECT_TRUE(contains(found->text, override_text) || contains(found->text, "whole.yaml:"));
        EXPECT_TRUE(contains(found->text, ": has no effect with")) << found->text;
        for (const State& state : condition.states) EXPECT_TRUE(contains(found->text, state.key));
        EXPECT_FALSE(found->overridden);
      }
      return;
    }
    const std::string typed = test::error_message<ConfigError>(
        [&] { static_cast<void>(load_config(std::nullopt, as_overrides(values))); });
    const std::string written =
        test::error_message<ConfigError>([&] { static_cast<void>(load_config(file, {})); });
    EXPECT_TRUE(contains(typed, override_text)) << typed;
    EXPECT_TRUE(contains(written, "whole.yaml:")) << written;
    for (const std::string& text : {typed, written}) {
      EXPECT_TRUE(contains(text, name + ": has no effect with")) << text;
      for (const State& state : condition.states) EXPECT_TRUE(contains(text, state.key)) << text;
      EXPECT_EQ(contains(text, "contradict each other"), condition.idle == Idle::contradicts) << text;
    }
  }

  test::TemporaryDirectory directory_;
};

TEST_F(Effects, EveryDeclaredKeyIsNamedWhereItHasNone) {
  size_t conditions = 0;
  for_each_key([&](const Key& key) {
    const std::string value = some_value(key.full_name(), enabled(key.full_name()));
    for (const Condition& condition : key.conditions) {
      conditions++;
      Values values;
      for (const State& state : condition.states) add(state, true, values);
      for (const Condition& other : key.conditions) {
        if (&other != &condition) add(other.states.front(), false, values);
      }
      values[key.full_name()] = value;
      expect_said(key, condition, values);
    }
  });
  EXPECT_GT(conditions, 60u);
}

TEST_F(Effects, NoKeyIsNamedWhereItHasOne) {
  for_each_key([&](const Key& key) {
    Values values = enabled(key.full_name());
    values[key.full_name()] = some_value(key.full_name(), values);
    const std::vector<std::string> keys = named(load_config(std::nullopt, as_overrides(values)));
    EXPECT_EQ(std::ranges::count(keys, key.full_name()), 0);
  });
}

// Whoever adds a key says when it has an effect, or that it always has one.
TEST_F(Effects, TheseKeysAlwaysHaveOne) {
  std::set<std::string> always;
  for_each_key([&](const Key& key) {
    if (key.conditions.empty()) always.insert(key.full_name());
  });
  const std::set<std::string> expected{"model.path",
                                       "model.dtype",
                                       "model.init",
                                       "model.quantize",
                                       "model.add_tokens",
                                       "model.encoder_only",
                                       "lora.adapter",
                                       "data.train",
                                       "data.eval",
                                       "data.kind",
                                       "data.input",
                                       "data.target",
                                       "data.long_samples",
                                       "data.max_samples",
                                       "data.bad_rows",
                                       "data.max_unknown",
                                       "data.loss_weight",
                                       "data.shuffle",
                                       "data.prefetch",
                                       "data.cache",
                                       "training.batch_size",
                                       "training.gradient_accumulation_steps",
                                       "training.effective_batch_size",
                                       "training.max_steps",
                                       "training.max_hours",
                                       "training.micro_batching",
                                       "training.max_grad_norm",
                                       "training.max_bad_steps",
                                       "training.eval_strategy",
                                       "training.load_best_model_at_end",
                                       "training.early_stopping_patience",
                                       "training.logging_steps",
                                       "training.num_workers",
                                       "training.num_threads",
                                       "training.cpu_products",
                                       "training.label_smoothing",
                                       "training.z_loss",
                                       "training.focal_gamma",
                                       "training.neftune_noise_alpha",
                                       "training.dropout",
                                       "training.replay_cuts",
                                       "evaluation.generate",
                                       "optimizer.name",
                                       "optimizer.weight_decay",
                                       "optimizer.grad_dtype",
                                       "save.strategy",
                                       "save.minutes",
                                       "save.total_limit",
                                       "save.result_dtype",
                                       "save.async",
                                       "observe.tensorboard",
                                       "observe.report_to",
                                       "observe.report_minutes",
                                       "memory.gradient_checkpointing",
                                       "memory.rehearse",
                                       "memory.limit",
                                       "memory.offload",
                                       "parallel.gpus",
                                       "recovery.max_retries",
                                       "notify.webhook",
                                       "objective.name",
                                       "notify.command",
                                       "device",
                                       "seed",
                                       "output_dir",
                                       "overwrite_output_dir",
                                       "resume"};
  EXPECT_EQ(always, expected);
}

TEST_F(Effects, TwoKeysThatContradictEachOtherAreAnErrorWithBothPlaces) {
  const std::string preset = "save:\n  strategy: \"no\"\n";
  EXPECT_TRUE(
      contains(message(preset, {"save.steps=5"}), "override 'save.steps=5': save.steps: has no effect"));
  EXPECT_TRUE(
      contains(message(preset, {"save.steps=5"}),
               "without save.strategy: steps (" + (directory_ / "my.yaml").string() + ":2:13 says \"no\")"));
  EXPECT_TRUE(contains(message(preset + "  steps: 500\n"), "my.yaml:3:10: save.steps: has no effect"));
  EXPECT_TRUE(contains(message(preset + "  steps: 500\n"), "save.strategy: steps (line 2 says \"no\")"));
  EXPECT_TRUE(contains(message("", {"save.steps=5", "save.strategy=epoch"}),
                       "(override 'save.strategy=epoch' says epoch)"));
  write("base.yaml", preset);
  EXPECT_TRUE(contains(message("extends: base\nsave: {steps: 5}\n"), "base.yaml:2:13 says"));
  EXPECT_TRUE(contains(
      message("data: {eval: 0.1}\ntraining: {eval_strategy: epoch, eval_steps: 10}\n"),
      "training.eval_steps: has no effect without training.eval_strategy: steps (line 2 says epoch)"));
}

TEST_F(Effects, WhatALaterLayerSwitchesOffIsNoContradiction) {
  const fs::path file = write("mine.yaml", "save:\n  steps: 5\n");
  const std::vector<IdleKey> idle = keys_without_effect(load_config(file, {"save.strategy=no"}));
  ASSERT_EQ(idle.size(), 1u);
  EXPECT_EQ(idle[0].text, file.string() +
                              ":2:10: save.steps: has no effect without save.strategy: steps (override "
                              "'save.strategy=no' says \"no\")");
  EXPECT_TRUE(idle[0].overridden);
  EXPECT_EQ(named(load_config(write("top.yaml", "extends: mine\nsave: {strategy: \"no\"}\n"), {})),
            std::vector<std::string>{"save.steps"});
}

// The other state is a default: nothing in the file is against the key.
TEST_F(Effects, WhatAnOverrideAndADefaultSwitchOffIsOverridden) {
  const fs::path file = write("mine.yaml", "optimizer: {state_dtype: bf16}\n");
  const std::vector<IdleKey> idle = keys_without_effect(load_config(file, {"optimizer.name=adafactor"}));
  ASSERT_EQ(idle.size(), 1u);
  EXPECT_EQ(idle[0].key, "optimizer.state_dtype");
  EXPECT_TRUE(idle[0].overridden);
}

TEST_F(Effects, WhatIsSaidOfEvaluationsWaitsForDataInAFileWithoutAny) {
  const fs::path preset = write("preset.yaml", "training: {eval_steps: 20, eval_batch_size: 1}\n");
  EXPECT_TRUE(named(load_config(preset, {"data.train=rows.jsonl"})).empty());
  EXPECT_EQ(named(load_config(preset, {"data.train=rows.jsonl", "training.eval_strategy=no"})),
            (std::vector<std::string>{"training.eval_steps", "training.eval_batch_size"}));
  const std::vector<IdleKey> typed = keys_without_effect(load_config(std::nullopt, {"eval_steps=20"}));
  ASSERT_EQ(typed.size(), 1u);
  EXPECT_EQ(typed[0].text, "override 'eval_steps=20': training.eval_steps: has no effect without data.eval");
  const fs::path mine = write("mine.yaml", "data: {train: rows.jsonl}\ntraining: {eval_steps: 20}\n");
  EXPECT_EQ(named(load_config(mine, {})), std::vector<std::string>{"training.eval_steps"});
  EXPECT_TRUE(named(load_config(mine, {"data.eval=0.1"})).empty());
}

// A run is started again with the configuration that it wrote, also by an earlier version.
TEST_F(Effects, AFileThatTheProgramWroteHasAllKeys) {
  for (const std::vector<std::string>& overrides : {std::vector<std::string>{},
                                                    {"device=cpu", "save.strategy=no"},
                                                    {"evaluation.num_beams=4", "lora={}"}}) {
    const Config config = load_config(std::nullopt, overrides);
    std::ostringstream dump;
    write_yaml(config, dump);
    EXPECT_EQ(named(load_config(write("dump.yaml", dump.str()), {})), named(config));
  }
  const std::string old =
      "# Configuration of trainer 0.1.0, every key.\nsave:\n  strategy: \"no\"\n  steps: 500\n";
  EXPECT_TRUE(named(load_config(write("old.yaml", old), {})).empty());
}

TEST_F(Effects, PresetsAndExamplesHaveNoKeyWithoutOne) {
  size_t files = 0;
  for (const char* folder : {"configs", "examples"}) {
    for (const auto& entry : fs::directory_iterator(fs::path(SOURCE_DIR) / folder)) {
      if (entry.path().extension() != ".yaml") continue;
      files++;
      EXPECT_EQ(named(load_config(entry.path(), {"data.train=rows.jsonl"})), std::vector<std::string>{})
          << entry.path();
    }
  }
  EXPECT_GT(files, 25u);
}

}  // namespace
}  // namespace trainer
