// Files of other trainers whose keys do not go together, or mean something only there.
#include <fstream>

#include <gtest/gtest.h>

#include "trainer/base/strings.h"
#include "trainer/config/load.h"

#include "config/import_config.h"
#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

using test::contains;

class ImportChoices : public ::testing::Test {
 protected:
  // Returns the configuration that a file becomes; said_ is then what was left out.
  Config config(const std::string& text) {
    std::ofstream(directory_ / "theirs.yaml") << text;
    const ImportedConfig imported = import_config(directory_ / "theirs.yaml");
    said_ = join(imported.left_out, "\n");
    std::ofstream(directory_ / "ours.yaml") << imported.yaml;
    return load_config(directory_ / "ours.yaml", {});
  }

  const test::TemporaryDirectory directory_;
  std::string said_;
};

constexpr const char* kAxolotlStart =
    "base_model: m\nmicro_batch_size: 1\nsequence_len: 64\ndatasets: [{path: a.jsonl, type: x}]\n";
constexpr const char* kFactoryStart =
    "model_name_or_path: m\nfinetuning_type: lora\ntemplate: llama3\ncutoff_len: 64\n";

// axolotl (TRL) and LLaMA-Factory mask the prompts of preferences in any case.
TEST_F(ImportChoices, PromptsOfPreferencesAreNotLearnt) {
  for (const char* rl :
       {"rl: simpo\n", "rl: simpo\ncpo_alpha: 0.5\n", "rl: dpo\nrpo_alpha: 1.0\n", "rl: kto\n"}) {
    EXPECT_EQ(config(concat(kAxolotlStart, rl, "train_on_inputs: true\n")).data.loss_on, LossOn::all_turns)
        << rl;
    EXPECT_TRUE(contains(said_, "train_on_inputs: has no effect on preferences there")) << rl << said_;
  }
  EXPECT_EQ(config(concat(kAxolotlStart, "rl: orpo\ntrain_on_inputs: true\n")).data.loss_on,
            LossOn::everything);
  for (const char* stage : {"stage: dpo\npref_loss: simpo\npref_ftx: 0.5\n", "stage: kto\n", "stage: rm\n"}) {
    EXPECT_EQ(config(concat(kFactoryStart, stage, "train_on_prompt: true\n")).data.loss_on, LossOn::all_turns)
        << stage;
    EXPECT_TRUE(contains(said_, "train_on_prompt: has no effect on preferences there")) << stage << said_;
  }
}

TEST_F(ImportChoices, RewardModelsStayRewardModels) {
  const Config axolotl = config(concat(kAxolotlStart, "reward_model: true\nnum_labels: 1\n"));
  EXPECT_EQ(axolotl.objective.name, "reward");
  EXPECT_EQ(axolotl.data.kind, DataKind::preference);
  EXPECT_EQ(said_, "");
  EXPECT_EQ(config(concat(kFactoryStart, "stage: rm\n")).objective.name, "reward");
  EXPECT_EQ(said_, "");
}

TEST_F(ImportChoices, OfKeysThatDoNotGoTogetherNoneIsLostSilently) {
  config(concat(kFactoryStart, "stage: sft\ntrain_on_prompt: true\nmask_history: true\n"));
  EXPECT_TRUE(contains(said_, "data.loss_on: everything: is last_turn because of mask_history")) << said_;
  const Config both = config(concat(
      kAxolotlStart, "adapter: lora\nlora_r: 4\nlora_target_modules: [q_proj]\nlora_target_linear: true\n"));
  EXPECT_EQ(std::get<std::string>(both.lora->target_modules), "all-linear");
  EXPECT_TRUE(contains(said_, "lora.target_modules: [q_proj]: is all-linear because of")) << said_;
}

TEST_F(ImportChoices, SettingsOfGeneratingAreNotThoseOfATeacher) {
  config(concat(kFactoryStart, "stage: sft\ndo_sample: true\ntemperature: 0.9\ntop_k: 50\ntop_p: 0.7\n"));
  for (const char* name : {"do_sample", "temperature", "top_k", "top_p"})
    EXPECT_TRUE(contains(said_, concat(name, ": `trainer generate` has options for it"))) << said_;
  EXPECT_FALSE(contains(said_, "distill")) << said_;
}

TEST_F(ImportChoices, AnotherQuantisationIsNamed) {
  std::ofstream(directory_ / "theirs.yaml")
      << concat(kFactoryStart, "stage: sft\nquantization_bit: 4\nquantization_method: hqq\n");
  const ImportedConfig imported = import_config(directory_ / "theirs.yaml");
  EXPECT_TRUE(contains(join(imported.changes, "\n"), "quantization_method: hqq is not supported"));
}

}  // namespace
}  // namespace trainer
