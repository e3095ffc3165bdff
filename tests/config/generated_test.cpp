// What is generated from the declarations of the keys: the reference page, the JSON schema, commented YAML.
#include <fstream>
#include <set>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/base/files.h"
#include "trainer/config/load.h"

#include "config/foreign_keys.h"
#include "config/schema.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = SOURCE_DIR;

std::string written(void (*write)(std::ostream&)) {
  std::ostringstream out;
  write(out);
  return out.str();
}

std::string as_yaml(const Config& config) {
  std::ostringstream out;
  write_yaml(config, out);
  return out.str();
}

std::vector<fs::path> presets() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(kSource / "configs")) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  return files;
}

TEST(Generated, ReferencePageIsUpToDate) {
  EXPECT_EQ(read_file(kSource / "docs/config.md"), written(write_reference_page))
      << "write it anew: scripts/check/generated --write";
}

TEST(Generated, JsonSchemaIsUpToDate) {
  EXPECT_EQ(read_file(kSource / "configs/schema.json"), written(write_json_schema))
      << "write it anew: scripts/check/generated --write";
}

TEST(Generated, TablesOfOtherTrainersKeysAreUpToDate) {
  const std::string page = read_file(kSource / "docs/coming-from.md");
  EXPECT_NE(page.find(written(config::write_foreign_keys)), std::string::npos)
      << "write them anew: scripts/check/generated --write";
}

// What the answers, import-config and the page promise of a key is there.
TEST(ForeignKeys, NameKeysThatExist) {
  std::set<std::string> names;
  for (const config::ForeignKey& foreign : config::foreign_keys()) {
    const bool known =
        config::find_key(foreign.key()) != nullptr || config::find_section(foreign.key()) != nullptr;
    EXPECT_TRUE(known || *foreign.ours == '\0') << foreign.theirs << ": " << foreign.ours;
    EXPECT_TRUE(*foreign.ours != '\0' || *foreign.note != '\0') << foreign.theirs << " says nothing";
    for (const std::string& name : foreign.names())
      EXPECT_TRUE(names.insert(name).second) << name << " is there twice";
  }
}

TEST(Generated, SummaryNamesEveryKey) {
  const std::string summary = written(write_key_summary);
  for (const config::Section& section : config::schema()) {
    for (const config::Key& key : section.keys) {
      EXPECT_NE(summary.find(key.full_name() + "="), std::string::npos) << key.full_name();
    }
  }
}

TEST(OnResume, OfEveryKeyIsKnown) {
  size_t keys = 0, marked = 0;
  for (const config::Section& section : config::schema()) keys += section.keys.size();
  for (const OnResume mark :
       {OnResume::may_change, OnResume::is_logged, OnResume::fixes_run, OnResume::fixes_run_by_content})
    marked += keys_marked(mark).size();
  EXPECT_EQ(marked, keys);
  EXPECT_EQ(on_resume("data.loss_on"), OnResume::fixes_run);
  EXPECT_EQ(on_resume("optimizer.learning_rate"), OnResume::is_logged);
  EXPECT_THROW(on_resume("data.nothing"), ConfigError);
}

// Where and how a run computes, what it keeps and what it shows are no part of what it is.
TEST(OnResume, KeysThatDoNotTouchTheResultMayChange) {
  for (const char* section : {"evaluation", "save", "memory", "gpu", "recovery", "notify"}) {
    for (const std::string& key : keys_of_section(section))
      EXPECT_EQ(on_resume(key), OnResume::may_change) << key;
  }
}

// Reads what was written and writes it again: a key that is lost or changed on the way would show.
void expect_round_trip(const Config& config) {
  test::TemporaryDirectory directory;
  const std::string text = as_yaml(config);
  std::ofstream(directory / "dump.yaml") << text;
  EXPECT_EQ(as_yaml(load_config(directory / "dump.yaml", {})), text);
}

TEST(Dump, ReadsBackToTheSameValues) {
  expect_round_trip(Config{});
  const Config config = load_config(
      std::nullopt, {"model.path=/a b/c: #d", "lora.target_modules=.*\\.(q|v)$",
                     "lora.modules_to_save=[a, \"null\", \"1.5\"]",
                     "data.train=[\"a,b.jsonl\", 'c\"d.jsonl', \"ü\\n.jsonl\"]", "data.input={x}: \"{y}\"",
                     "data.target=true", "training.dropout=0.1", "training.effective_batch_size=7",
                     "optimizer.learning_rate=1.2345678901234567e-5", "training.num_train_epochs=0.1",
                     "output_dir=-", "training.eval_strategy=no", "device=cuda:3"});
  expect_round_trip(config);
  test::TemporaryDirectory directory;
  std::ofstream(directory / "dump.yaml") << as_yaml(config);
  const Config again = load_config(directory / "dump.yaml", {});
  EXPECT_EQ(again.model.path, "/a b/c: #d");
  EXPECT_EQ(again.data.train, (std::vector<DataSource>{{"a,b.jsonl"}, {"c\"d.jsonl"}, {"ü\n.jsonl"}}));
  EXPECT_EQ(again.data.target, "true");
  EXPECT_EQ(again.lora->modules_to_save, (std::vector<std::string>{"a", "null", "1.5"}));
  EXPECT_EQ(again.optimizer.learning_rate, 1.2345678901234567e-5);
  EXPECT_EQ(again.output_dir, "-");
}

TEST(Dump, HasTheKeysThatHaveAnEffectAndTheirDefaults) {
  const Config config = load_config(std::nullopt, {"optimizer.name=adafactor"});
  const std::string text = as_yaml(config);
  for (const char* line : {"  learning_rate: 0.001\n", "  eps: [1.0e-30, 0.001]\n", "  beta1: null\n",
                           "  lr_scheduler_type: constant_with_warmup\n", "  max_grad_norm: 0\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  EXPECT_EQ(text.find("adam_beta1"), std::string::npos);
  EXPECT_EQ(as_yaml(Config{}).find("decay_rate"), std::string::npos);
  expect_round_trip(config);
  expect_round_trip(load_config(std::nullopt, {"optimizer.name=adafactor", "optimizer.relative_step=true",
                                               "optimizer.beta1=0.9", "optimizer.eps=[1e-9, 2]"}));
}

TEST(Dump, SaysWhatAutomaticEvaluationsBecome) {
  const auto dump = [](const std::vector<std::string>& overrides) {
    const Config config = load_config(std::nullopt, overrides);
    expect_round_trip(config);
    return as_yaml(config);
  };
  const auto has = [](const std::string& text, const char* line) {
    return text.find(line) != std::string::npos;
  };
  EXPECT_TRUE(has(dump({}), "  eval_strategy: auto  # here: \"no\"\n"));
  EXPECT_TRUE(has(dump({"data.eval=0.1", "eval_strategy=auto"}), "  eval_strategy: auto  # here: epoch\n"));
  const std::string by_steps = dump({"data.eval=0.1", "eval_steps=20"});
  EXPECT_TRUE(has(by_steps, "  eval_strategy: auto  # here: steps\n")) << by_steps;
  EXPECT_TRUE(has(by_steps, "  eval_steps: 20\n")) << by_steps;
  EXPECT_TRUE(has(dump({"data.eval=0.1", "eval_strategy=epoch"}), "  eval_strategy: epoch\n"));
}

TEST(Schema, ListsTheWordForTheDefault) {
  std::ostringstream out;
  write_json_schema(out);
  const auto schema = nlohmann::json::parse(out.str());
  const auto& key = schema["properties"]["training"]["properties"]["eval_strategy"];
  EXPECT_EQ(key["enum"], nlohmann::json({"no", "steps", "epoch", "auto"}));
  EXPECT_EQ(key["default"], "auto");
}

TEST(Presets, LoadAndReadBack) {
  EXPECT_GE(presets().size(), 7u);
  for (const fs::path& file : presets()) {
    SCOPED_TRACE(file.string());
    ASSERT_NO_THROW(expect_round_trip(load_config(file, {})));
  }
}

TEST(Presets, OpenWithPurposeAndLaunchLine) {
  for (const fs::path& file : presets()) {
    const std::string text = read_file(file);
    EXPECT_TRUE(text.starts_with("# ")) << file;
    EXPECT_NE(text.find("--config configs/" + file.filename().string()), std::string::npos) << file;
  }
}

TEST(Presets, OfLargeModelsKeepTheirUpdate) {
  const Config t5 = load_config(kSource / "configs/flan_t5_xl.yaml", {"batch_size=2"});
  EXPECT_EQ(t5.effective_batch_size(), 128);
  EXPECT_EQ(t5.data.max_source_length, 196);
  EXPECT_EQ(t5.data.max_target_length, 384);
  EXPECT_FALSE(t5.lora);
  const Config qwen = load_config(kSource / "configs/qwen2_5_7b_lora_24gb.yaml", {});
  EXPECT_EQ(qwen.effective_batch_size(), 16);
  EXPECT_EQ(qwen.lora->r, 128);
  EXPECT_EQ(qwen.data.max_length, 1536);
}

}  // namespace
}  // namespace trainer
