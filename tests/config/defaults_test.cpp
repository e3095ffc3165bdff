// Defaults that follow from the method and the model, and that presets hold to them.
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainer/base/files.h"
#include "trainer/base/strings.h"
#include "trainer/config/load.h"

#include "config/go_on.h"
#include "config/keys.h"
#include "config/model_family.h"
#include "config/run_config.h"
#include "config/schema.h"
#include "config/value.h"
#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using test::contains;
using Overrides = std::vector<std::string>;

const fs::path kConfigs = fs::path(SOURCE_DIR) / "configs";

class Defaults : public ::testing::Test {
 protected:
  Defaults() {
    for (const auto& [name, json] :
         std::map<std::string, std::string>{{"t5", R"({"model_type": "t5"})"},
                                            {"bart", R"({"model_type": "x", "is_encoder_decoder": true})"},
                                            {"qwen", R"({"model_type": "qwen3"})"}}) {
      fs::create_directory(directory_ / name);
      write(name + "/config.json", json);
    }
  }

  fs::path write(const std::string& name, const std::string& text) const {
    std::ofstream(directory_ / name) << text;
    return directory_ / name;
  }

  // The values of keys, of a model in the directory ("": none) and with overrides.
  std::string values(const std::string& model, const Overrides& more, const Overrides& keys) const {
    Overrides overrides = more;
    if (!model.empty()) overrides.push_back("model.path=" + (directory_ / model).string());
    const Config config = load_config(std::nullopt, overrides);
    Overrides texts;
    for (const std::string& key : keys) texts.push_back(value_text(config, key));
    return join(texts, " ");
  }

  test::TemporaryDirectory directory_;
};

const Overrides kRate{"optimizer.learning_rate"}, kBatch{"training.effective_batch_size"},
    kSchedule{"optimizer.lr_scheduler_type", "optimizer.warmup_ratio"};

TEST_F(Defaults, OfLora) {
  const Overrides keys{"lora.r", "lora.lora_alpha", "lora.lora_dropout", "lora.target_modules",
                       "optimizer.learning_rate"};
  for (const char* model : {"", "t5", "qwen"})
    EXPECT_EQ(values(model, {"lora={}"}, keys), "16 32 0 all-linear 2.0e-04") << model;
  EXPECT_EQ(values("qwen", {"lora.r=8"}, keys), "8 32 0 all-linear 2.0e-04");
  EXPECT_EQ(values("qwen", {"lora.target_modules=[]"}, {"lora.target_modules"}), "[]");
}

TEST_F(Defaults, OfFullFineTuningFollowTheModel) {
  EXPECT_EQ(values("t5", {}, kRate), "1.0e-04");
  EXPECT_EQ(values("bart", {}, kRate), "1.0e-04");
  EXPECT_EQ(values("qwen", {}, kRate), "1.0e-05");
  EXPECT_EQ(values("", {}, kRate), "1.0e-05");
  EXPECT_EQ(values("t5", {}, kSchedule), "linear 0.03");
  EXPECT_EQ(values("qwen", {}, kSchedule), "cosine 0.03");
  EXPECT_EQ(values("qwen", {"optimizer.learning_rate=3e-4", "lora={}"}, kRate), "3.0e-04");
}

// Adafactor's rate of 0.001 is T5's own, and would destroy a decoder.
TEST_F(Defaults, OfAdafactorFollowTheModel) {
  EXPECT_EQ(values("t5", {"optimizer.name=adafactor"}, kRate), "0.001");
  EXPECT_EQ(values("", {"optimizer.name=adafactor"}, kRate), "0.001");
  EXPECT_EQ(values("qwen", {"optimizer.name=adafactor"}, kRate), "1.0e-05");
  EXPECT_EQ(values("t5", {"optimizer.name=adafactor", "lora={}"}, kRate), "2.0e-04");
  EXPECT_EQ(values("qwen", {"optimizer.name=adafactor"}, kSchedule), "constant_with_warmup 0.03");
}

TEST_F(Defaults, AnUpdateHasAsManySamplesAsWereNamed) {
  EXPECT_EQ(values("qwen", {}, kBatch), "16");
  EXPECT_EQ(values("t5", {}, kBatch), "32");
  EXPECT_EQ(values("t5", {"batch_size=4"}, kBatch), "null");
  EXPECT_EQ(load_config(std::nullopt, {"batch_size=4"}).effective_batch_size(), 4);
  EXPECT_EQ(load_config(std::nullopt, {"gradient_accumulation_steps=4"}).effective_batch_size(), 32);
  EXPECT_EQ(values("t5", {"batch_size=fit"}, kBatch), "32");
  EXPECT_EQ(load_config(std::nullopt, {"batch_size=null"}).effective_batch_size(), 16);
}

TEST_F(Defaults, OfTheWarmupGiveWayToWhatIsNamed) {
  EXPECT_EQ(values("qwen", {"warmup_steps=10"}, {"optimizer.warmup_steps", "optimizer.warmup_ratio"}),
            "10 0");
  EXPECT_EQ(values("qwen", {"warmup_steps=0"}, {"optimizer.warmup_steps", "optimizer.warmup_ratio"}), "0 0");
  for (const char* without : {"lr_scheduler_type=constant", "lr_scheduler_type=inverse_sqrt"})
    EXPECT_EQ(values("qwen", {without}, {"optimizer.warmup_ratio"}), "0") << without;
  EXPECT_EQ(values("t5", {"optimizer.name=adafactor", "relative_step=true"}, {"optimizer.warmup_ratio"}),
            "0");
}

TEST_F(Defaults, OfSavingAndMemory) {
  EXPECT_EQ(
      values("", {},
             {"save.total_limit", "memory.rehearse", "training.batch_size", "memory.gradient_checkpointing"}),
      "2 auto fit fit");
  const Config config = load_config(std::nullopt, {});
  EXPECT_TRUE(config.training.batch_size.gives_way());
  EXPECT_EQ(config.training.batch_size, 8);
  EXPECT_EQ(config.memory.gradient_checkpointing.of(12), 0);
  EXPECT_FALSE(load_config(std::nullopt, {"batch_size=8"}).training.batch_size.gives_way());
  EXPECT_TRUE(load_config(std::nullopt, {"batch_size=fit"}).training.batch_size.gives_way());
}

// What a run has written holds every value, whatever the defaults are by now.
TEST_F(Defaults, AConfigurationThatNamesItsValuesKeepsThem) {
  const fs::path old = write("old.yaml", R"(# Configuration of trainer 0.1.0, every key that has an effect.
model: {path: )" + (directory_ / "qwen").string() +
                                             R"(}
lora: {r: 8, lora_alpha: 16, lora_dropout: 0, target_modules: []}
training: {batch_size: 8, gradient_accumulation_steps: null, effective_batch_size: null}
optimizer: {learning_rate: 5.0e-05, lr_scheduler_type: linear, warmup_steps: 0, warmup_ratio: 0}
save: {total_limit: 0}
memory: {gradient_checkpointing: false, rehearse: true}
)");
  const Config config = load_config(old, {});
  std::ostringstream text;
  write_yaml(config, text);
  for (const char* line :
       {"  r: 8\n", "  lora_alpha: 16\n", "  target_modules: []\n", "  batch_size: 8\n",
        "  learning_rate: 5.0e-05\n", "  lr_scheduler_type: linear\n", "  warmup_ratio: 0\n",
        "  total_limit: 0\n", "  gradient_checkpointing: false\n", "  rehearse: true\n"})
    EXPECT_TRUE(contains(text.str(), line)) << line << text.str();
  EXPECT_EQ(config.effective_batch_size(), 8);
  EXPECT_TRUE(keys_without_effect(config).empty());
}

// Today's dump is as complete: loaded where the model is unknown, or is another one, it has the same values.
TEST_F(Defaults, ADumpHoldsWhatWasChosen) {
  for (const char* model : {"t5", "qwen"}) {
    for (const Overrides& more : {Overrides{}, {"lora={}"}, {"optimizer.name=adafactor"}}) {
      Overrides overrides = more;
      overrides.push_back("model.path=" + (directory_ / model).string());
      std::ostringstream first, second;
      const Config config = load_config(std::nullopt, overrides);
      write_yaml(config, first);
      Config again = load_config(write("dump.yaml", first.str()), {"model.path=elsewhere"});
      again.model.path = config.model.path;
      write_yaml(again, second);
      EXPECT_EQ(first.str(), second.str());
    }
  }
}

TEST_F(Defaults, AreToldWithTheirCases) {
  const std::string rate = config::all_defaults(*config::find_key("optimizer.learning_rate"));
  EXPECT_TRUE(contains(rate, "1.0e-05 (1.0e-04 for T5")) << rate;
  EXPECT_TRUE(contains(rate, "2.0e-04 with lora")) << rate;
  const std::string batch = config::all_defaults(*config::find_key("training.effective_batch_size"));
  EXPECT_TRUE(contains(batch, "16 without training.batch_size")) << batch;
}

TEST_F(Defaults, AreNoChangedKeys) {
  const Config config =
      load_config(std::nullopt, {"lora={}", "model.path=" + (directory_ / "qwen").string()});
  EXPECT_EQ(changed_keys(config), (Overrides{"model.path", "lora.r"}));
}

TEST(ModelFamily, IsThatOfTheConfigJson) {
  EXPECT_EQ(config::model_family((kConfigs / "models/flan-t5-base.json").string()), config::kT5);
  EXPECT_EQ(config::model_family((kConfigs / "models/qwen2.5-7b.json").string()), config::kDecoders);
  for (const char* none : {"", "no/such/model", "/dev/null"})
    EXPECT_EQ(config::model_family(none), "") << none;
}

// The keys of a preset that do not follow from its model, its data and its card.
bool is_choice(const config::Key& key) {
  static const std::set<std::string> kSections{"lora", "optimizer"},
      kKeys{"training.effective_batch_size", "training.num_train_epochs", "save.total_limit",
            "save.strategy"};
  return kSections.contains(key.section) || kKeys.contains(key.full_name());
}

// A value other than the default of the same method and model has a reason on its line.
TEST(Presets, HoldToTheDefaultsOrSayWhyNot) {
  size_t presets = 0, compared = 0;
  for (const auto& entry : fs::directory_iterator(kConfigs)) {
    if (entry.path().extension() != ".yaml") continue;
    presets++;
    Config config = load_config(entry.path(), {});
    // The names of cards are found in the program's own folder.
    const fs::path card = kConfigs / "models" / (config.model.path + ".json");
    if (fs::exists(card)) config = load_config(entry.path(), {"model.path=" + card.string()});
    Overrides lines;
    std::istringstream text(read_file(entry.path()));
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    for (const auto& [name, origin] : config.origins) {
      const config::Key* key = config::find_key(name);
      if (key == nullptr || !is_choice(*key)) continue;
      compared++;
      if (value_text(config, name) == config::default_here(*key, config)) continue;
      const size_t column = origin.rfind(':'), line = origin.rfind(':', column - 1);
      const std::string& said = lines.at(std::stoul(origin.substr(line + 1)) - 1);
      EXPECT_TRUE(contains(said, "  # "))
          << origin << ": " << said << "\nthe default is " << config::default_here(*key, config);
    }
  }
  EXPECT_GT(presets, 20u);
  EXPECT_GT(compared, 100u);
}

class OfRun : public Defaults {};

TEST_F(OfRun, TheCommandToGoOnSaysWhatMustBeOtherwise) {
  Config config;
  config.output_dir = (directory_ / "out").string();
  const std::string file = (directory_ / "out/config.yaml").string();
  EXPECT_EQ(go_on_command(config, directory_ / "out"), "trainer --config " + file);
  config.overwrite_output_dir = true;
  config.resume = "never";
  EXPECT_EQ(go_on_command(config, directory_ / "out"),
            "trainer --config " + file + " overwrite_output_dir=false resume=auto");
  config = {};
  config.output_dir = "runs/a";
  EXPECT_TRUE(
      contains(go_on_command(config, directory_ / "out"), " output_dir=" + (directory_ / "out").string()));
  config.notify.webhook = "https://example.com/secret";
  EXPECT_FALSE(contains(go_on_command(config, "runs/a"), "secret"));
  EXPECT_TRUE(contains(go_on_command(config, "runs/a b"), "'runs/a b/config.yaml'"));
  config.training.max_steps = 30;
  EXPECT_TRUE(longer_run_command(config, "runs/a").ends_with(" max_steps=60"));
  config.training.max_steps = -1;
  EXPECT_TRUE(longer_run_command(config, "runs/a").ends_with(" num_train_epochs=6"));
}

TEST_F(OfRun, ResultsAndCheckpointsKnowHowRowsWereRead) {
  fs::create_directories(directory_ / "run/checkpoint-3");
  const Config trained = load_config(
      std::nullopt, {"data.input=text", "data.target=summary", "device=cuda:1", "memory.limit=2GB"});
  std::ostringstream text;
  write_yaml(trained, text);
  write("run/config.yaml", text.str());
  for (const char* model : {"run", "run/", "run/checkpoint-3"}) {
    const auto config = config_of_run(directory_ / model, {"data.target=title"});
    ASSERT_TRUE(config) << model;
    EXPECT_EQ(config->data.input, "text");
    EXPECT_EQ(config->data.target, "title");
    EXPECT_EQ(config->device, "auto");
    EXPECT_EQ(config->memory.limit, "");
  }
  EXPECT_FALSE(config_of_run(directory_ / "qwen"));
  write("qwen/config.yaml", "model: {path: x}\n");  // of somebody else
  EXPECT_FALSE(config_of_run(directory_ / "qwen"));
  write("run/config.yaml", text.str() + "unknown_key: 3\n");
  EXPECT_FALSE(config_of_run(directory_ / "run"));
}

// Their keys have an effect only beside what the run says.
TEST_F(OfRun, OverridesAreReadOnTopOfTheRun) {
  fs::create_directories(directory_ / "run");
  std::ostringstream text;
  write_yaml(load_config(std::nullopt, {"objective.name=dpo", "data.eval=rows.jsonl"}), text);
  write("run/config.yaml", text.str());
  const auto config = config_of_run(directory_ / "run", {"objective.reference=none", "device=cpu"});
  ASSERT_TRUE(config);
  EXPECT_EQ(config->objective.name, "dpo");
  EXPECT_EQ(config->objective.reference, Reference::none);
  EXPECT_EQ(config->device, "cpu");
  EXPECT_THROW(config_of_run(directory_ / "run", {"objective.loss_type=none"}), ConfigError);
}

}  // namespace
}  // namespace trainer
