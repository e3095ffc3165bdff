// What import-config makes of other programs' files: nothing in them is passed over without a word, and what
// they do without a key is written out.
#include "config/import_config.h"

#include <filesystem>
#include <fstream>
#include <functional>

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/config/load.h"

#include "support/error_message.h"
#include "support/hostile_json.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

using test::contains;
using test::error_message;

constexpr const char* kAxolotl = R"(base_model: models/llama
load_in_4bit: true
datasets:
  - path: rows.jsonl
    type: chat_template
    roles: {user: [asker]}
  - path: more.jsonl
    type: chat_template
test_datasets:
  - path: held.jsonl
    type: chat_template
adapter: lora
lora_r: 8
lora_alpha: 16
learning_rate: 1e-4
optimizer: adafactor
micro_batch_size: 2
lr_scheduler_kwargs: {power: 2.0}
special_tokens: {pad_token: x}
peft: {loftq_config: {loftq_bits: 4}}
unknown: {a: {b: 1}}
)";

constexpr const char* kFields = R"(base_model: m
datasets:
  - path: rows.jsonl
    type: {field_instruction: q, field_output: a, format: "{instruction}"}
micro_batch_size: 1
)";

constexpr const char* kLlamaFactory = R"(model_name_or_path: models/llama
stage: sft
finetuning_type: lora
dataset: mine
dataset_dir: DIR
lr_scheduler_kwargs: {power: 2.0}
)";

constexpr const char* kHuggingFace = R"(model_name_or_path: google/flan-t5-small
output_dir: out
train_file: a.jsonl
optim: adafactor
per_device_train_batch_size: 4
accelerator_config: {split_batches: false, even_batches: true}
gradient_checkpointing_kwargs: {use_reentrant: false}
lr_scheduler_kwargs: {}
fsdp_config: {min_num_params: 0, xla: false}
)";

constexpr const char* kTorchtune = R"(model:
  _component_: torchtune.models.qwen2_5.lora_qwen2_5_0_5b
  lora_attn_modules: [q_proj, v_proj]
  lora_rank: 8
tokenizer:
  _component_: torchtune.models.qwen2_5.qwen2_5_tokenizer
  path: /m/vocab.json
checkpointer:
  _component_: torchtune.training.FullModelHFCheckpointer
  checkpoint_dir: /m
dataset:
  _component_: torchtune.datasets.alpaca_dataset
  source: json
  data_files: a.jsonl
dataset_val:
  _component_: torchtune.datasets.alpaca_dataset
  source: json
  data_files: b.jsonl
optimizer:
  _component_: torch.optim.AdamW
  lr: 3e-4
lr_scheduler:
  _component_: torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup
  num_warmup_steps: 10
loss:
  _component_: torchtune.modules.loss.LinearCrossEntropyLoss
metric_logger:
  _component_: torchtune.training.metric_logging.DiskLogger
profiler:
  _component_: torchtune.training.setup_torch_profiler
  enabled: false
batch_size: 2
epochs: 1
dtype: bf16
output_dir: o
)";

constexpr const char* kInfo = R"({"mine": {"hf_hub_url": "org/set", "subset": "hard", "num_samples": 100,
  "columns": {"prompt": "q"}, "tags": {"role_tag": "who"}}})";

class ImportConfigTest : public ::testing::Test {
 protected:
  ImportConfigTest() { std::ofstream(directory_ / "dataset_info.json") << kInfo; }

  std::filesystem::path file(const std::string& text) const {
    std::string placed = text;
    if (const size_t at = placed.find("DIR"); at != std::string::npos)
      placed.replace(at, 3, directory_.path().string());
    std::ofstream(directory_ / "theirs.yaml") << placed;
    return directory_ / "theirs.yaml";
  }
  ImportedConfig imported(const std::string& text) const { return import_config(file(text)); }
  Config config(const std::string& text) const {
    std::ofstream(directory_ / "ours.yaml") << imported(text).yaml;
    return load_config(directory_ / "ours.yaml", {});
  }
  std::string refused(const std::string& text) const {
    return error_message<ConfigError>([&] { imported(text); });
  }

  const test::TemporaryDirectory directory_;
};

std::string all_of(const ImportedConfig& imported) {
  return concat(imported.yaml, "\n", join(imported.changes, "\n"), "\n", join(imported.left_out, "\n"));
}

// Calls `visit` with the document after one key has been added to one of its mappings.
void for_each_mapping(YAML::Node& document, YAML::Node at, const std::string& place,
                      const std::function<void(const std::string& text, const std::string& place)>& visit) {
  if (at.IsMap()) {
    at["zz_new"] = 7;
    visit(YAML::Dump(document), place);
    at.remove("zz_new");
  }
  if (!at.IsMap() && !at.IsSequence()) return;
  for (auto entry : at) {
    const bool in_map = at.IsMap();
    for_each_mapping(document, in_map ? entry.second : YAML::Node(entry),
                     place + "." + (in_map ? entry.first.Scalar() : "item"), visit);
  }
}

TEST_F(ImportConfigTest, AForeignKeyIsNamedAtEveryLevel) {
  int count = 0;
  for (const char* text : {kAxolotl, kFields, kLlamaFactory, kHuggingFace, kTorchtune}) {
    YAML::Node document = YAML::Load(text);
    for_each_mapping(document, document, "", [&](const std::string& changed, const std::string& place) {
      const ImportedConfig result = imported(changed);
      EXPECT_TRUE(contains(all_of(result), "zz_new")) << place << " of " << result.from;
      count++;
    });
  }
  EXPECT_GT(count, 30);
}

TEST_F(ImportConfigTest, AForeignKeyIsNamedInPlaceOfEveryValue) {
  for (const char* text : {kAxolotl, kFields, kLlamaFactory, kHuggingFace, kTorchtune}) {
    const YAML::Node document = YAML::Load(text);
    for (const auto& entry : document) {
      YAML::Node changed = YAML::Clone(document);
      changed[entry.first.Scalar()] = YAML::Load("{zz_new: {inner: 1}}");
      try {
        const ImportedConfig result = imported(YAML::Dump(changed));
        EXPECT_TRUE(contains(all_of(result), "zz_new")) << entry.first.Scalar() << " of " << result.from;
      } catch (const ConfigError& error) {
        ADD_FAILURE() << entry.first.Scalar() << ": " << error.what();
      }
    }
  }
}

TEST_F(ImportConfigTest, KeysInDatasetInfoAreNamed) {
  const std::string said = join(imported(kLlamaFactory).left_out, "\n");
  for (const char* name : {"mine.subset", "mine.num_samples", "mine.columns: {prompt}",
                           "mine.tags: {role_tag}", "lr_scheduler_kwargs: {power}"})
    EXPECT_TRUE(contains(said, name)) << name << " in " << said;
  EXPECT_TRUE(contains(imported(kLlamaFactory).yaml, "[org/set]"));
}

TEST_F(ImportConfigTest, ADamagedDatasetInfoIsNamed) {
  test::for_each_hostile(kInfo, [&](const std::string& text, const std::string& what) {
    std::ofstream(directory_ / "dataset_info.json") << text;
    EXPECT_EQ(test::wrong_words([&] {
                const ImportedConfig result = imported(kLlamaFactory);
                EXPECT_EQ(test::foreign_words(all_of(result)), "") << all_of(result);
              }),
              "")
        << what;
  });
}

TEST_F(ImportConfigTest, WhatSaysNothingIsNotNamed) {
  const std::string said = join(imported(kHuggingFace).left_out, "\n");
  for (const char* name : {"accelerator_config", "fsdp_config", "lr_scheduler_kwargs"})
    EXPECT_FALSE(contains(said, name)) << said;
  EXPECT_TRUE(contains(said, "use_reentrant")) << said;
}

// transformers 5.24: TrainingArguments, whatever the optimizer is.
TEST_F(ImportConfigTest, DefaultsOfHuggingFace) {
  const Config config = this->config(kHuggingFace);
  EXPECT_EQ(config.optimizer.learning_rate, 5e-5);
  EXPECT_EQ(value_text(config, "optimizer.lr_scheduler_type"), "linear");
  EXPECT_EQ(config.training.max_grad_norm, 1);
  EXPECT_EQ(config.training.logging_steps, 500);
  EXPECT_FALSE(config.training.tf32);
  EXPECT_TRUE(contains(imported(kHuggingFace).yaml, "learning_rate: 5.0e-05  # their default"));
  EXPECT_TRUE(contains(join(imported(kHuggingFace).defaults), "optimizer.learning_rate: 5.0e-05"));
  // What is given is not a default, and what is the same is not written.
  const std::string given = imported(concat(kHuggingFace, "learning_rate: 1e-3\nmax_grad_norm: 0\n")).yaml;
  EXPECT_TRUE(contains(given, "learning_rate: 0.001\n")) << given;
  EXPECT_TRUE(contains(given, "max_grad_norm: 0\n")) << given;
  EXPECT_FALSE(contains(given, "weight_decay")) << given;
}

// Where ours are others, theirs are written; also where ours follow from a model that is not here yet.
TEST_F(ImportConfigTest, TheirDefaultsAreWrittenWhereOursAreOthers) {
  const std::string yaml = imported(kHuggingFace).yaml;
  for (const char* line : {"lr_scheduler_type: linear  # their default", "warmup_ratio: 0  # their default",
                           "total_limit: 0  # all are kept, their default"})
    EXPECT_TRUE(contains(yaml, line)) << yaml;
  EXPECT_FALSE(contains(imported(concat(kHuggingFace, "warmup_steps: 5\n")).yaml, "warmup_ratio"));
  const Config trl = config("model_name_or_path: m\ndataset_name: org/set\nuse_peft: true\n");
  EXPECT_EQ(value_text(trl, "lora.target_modules"), "[]");
  EXPECT_EQ(value_text(trl, "save.total_limit"), "0");
  EXPECT_EQ(value_text(config(kLlamaFactory), "optimizer.warmup_ratio"), "0");
  EXPECT_EQ(value_text(config(kAxolotl), "save.total_limit"), "4");
  EXPECT_EQ(value_text(config(kTorchtune), "save.total_limit"), "0");
  EXPECT_TRUE(contains(imported(kAxolotl).yaml, "lr_scheduler_type: cosine"));
}

TEST_F(ImportConfigTest, EvaluationIsAsTheirsIsWithoutAStrategy) {
  const std::string with_data = concat(kHuggingFace, "validation_file: b.jsonl\n");
  EXPECT_EQ(value_text(config(with_data), "training.eval_strategy"), "\"no\"");
  const Config steps = config(concat(with_data, "eval_strategy: steps\nlogging_steps: 20\n"));
  EXPECT_EQ(value_text(steps, "training.eval_strategy"), "steps");
  EXPECT_EQ(steps.training.eval_steps, 20);
}

// trl 1.16: SFTConfig and ModelConfig
TEST_F(ImportConfigTest, DefaultsOfTrl) {
  const std::string text = "model_name_or_path: m\ndataset_name: org/set\nuse_peft: true\noutput_dir: o\n";
  const Config config = this->config(text);
  ASSERT_TRUE(config.lora);
  EXPECT_EQ(config.lora->r, 16);
  EXPECT_EQ(config.lora->lora_alpha, 32);
  EXPECT_EQ(config.lora->lora_dropout, 0.05);
  EXPECT_EQ(config.optimizer.learning_rate, 2e-5);
  EXPECT_EQ(value_text(config, "memory.gradient_checkpointing"), "true");
  EXPECT_FALSE(this->config("model_name_or_path: m\nuse_peft: false\nlora_r: 4\n").lora);
}

// Without a value these two are off there; they do not have their default.
TEST_F(ImportConfigTest, ANullThatTurnsAKeyOffIsNoDefault) {
  const std::string trl =
      "model_name_or_path: m\ndataset_name: org/set\nuse_peft: true\nmax_grad_norm: null\n";
  EXPECT_EQ(config(trl).training.max_grad_norm, 0);
  EXPECT_FALSE(config(trl).data.max_truncated);
  EXPECT_EQ(config(concat(trl, "max_length: null\n")).data.max_truncated, 0);
  EXPECT_EQ(config(concat(kHuggingFace, "max_grad_norm:\n")).training.max_grad_norm, 0);
  EXPECT_EQ(config(concat(kLlamaFactory, "max_grad_norm: ~\n")).training.max_grad_norm, 0);
  EXPECT_EQ(config(concat(kAxolotl, "max_grad_norm: null\n")).training.max_grad_norm, 1);
}

TEST_F(ImportConfigTest, TheBatchSizeOfAxolotlIsThatOfAnUpdate) {
  EXPECT_EQ(config(concat(kAxolotl, "batch_size: 32\n")).effective_batch_size(), 32);
  // The accumulation counts, and the other is named.
  const std::string both = concat(kAxolotl, "batch_size: 32\ngradient_accumulation_steps: 4\n");
  EXPECT_EQ(config(both).effective_batch_size(), 8);
  EXPECT_TRUE(contains(join(imported(both).left_out), "batch_size: 32"));
}

TEST_F(ImportConfigTest, ABatchOfAnySizeIsAnError) {
  const std::string huge = "base_model: m\nmicro_batch_size: 1e14\ngradient_accumulation_steps: 1e14\n";
  EXPECT_FALSE(contains(join(imported(huge).left_out), "found -")) << join(imported(huge).left_out);
}

// axolotl 0.19
TEST_F(ImportConfigTest, DefaultsOfAxolotl) {
  const Config config = this->config(kAxolotl);
  EXPECT_EQ(config.training.max_grad_norm, 1);
  EXPECT_EQ(config.optimizer.warmup_ratio, 0.03);
  EXPECT_EQ(value_text(config, "optimizer.lr_scheduler_type"), "cosine");
  EXPECT_EQ(config.data.max_length, 512);
  EXPECT_EQ(value_text(config, "data.long_samples"), "drop");
  EXPECT_EQ(config.training.num_train_epochs, 1);
  EXPECT_EQ(value_text(config, "training.eval_strategy"), "\"no\"");
  EXPECT_EQ(value_text(config, "save.strategy"), "epoch");
  EXPECT_TRUE(contains(join(imported(kAxolotl).changes, "\n"), "at most 100 updates"));
  // The number of updates is known: 3 % of them, at most 100.
  EXPECT_EQ(this->config(concat(kAxolotl, "max_steps: 1000\n")).optimizer.warmup_steps, 30);
  EXPECT_EQ(this->config(concat(kAxolotl, "max_steps: 10000\n")).optimizer.warmup_steps, 100);
  EXPECT_EQ(this->config(concat(kAxolotl, "warmup_steps: 0\n")).optimizer.warmup_ratio, 0);
  EXPECT_EQ(value_text(this->config(concat(kAxolotl, "bf16: false\n")), "model.dtype"), "fp32");
  EXPECT_EQ(
      value_text(this->config(concat(kAxolotl, "excess_length_strategy: truncate\n")), "data.long_samples"),
      "truncate");
}

// LLaMA-Factory 0.9.5
TEST_F(ImportConfigTest, DefaultsOfLlamaFactory) {
  const Config config = this->config(concat(kLlamaFactory, "optim: adafactor\n"));
  EXPECT_EQ(config.data.max_length, 2048);
  EXPECT_EQ(config.training.effective_batch_size, 8);
  EXPECT_EQ(config.optimizer.learning_rate, 5e-5);
  EXPECT_EQ(value_text(config, "optimizer.lr_scheduler_type"), "linear");
  EXPECT_EQ(config.training.max_grad_norm, 1);
  EXPECT_EQ(config.lora->lora_alpha, 16);
  EXPECT_EQ(value_text(config, "memory.gradient_checkpointing"), "true");
  const std::string texts = "model_name_or_path: m\nstage: pt\nfinetuning_type: full\n";
  EXPECT_EQ(value_text(this->config(texts), "data.long_samples"), "split");
}

TEST_F(ImportConfigTest, TokensOfLlamaFactoryHaveCommasBetweenThem) {
  EXPECT_EQ(config(concat(kLlamaFactory, "add_tokens: <a>, <b>\n")).model.add_tokens,
            (std::vector<std::string>{"<a>", "<b>"}));
}

// torchtune 0.7, torch 2.11
TEST_F(ImportConfigTest, DefaultsOfTorchtune) {
  const Config config = this->config(kTorchtune);
  EXPECT_EQ(config.optimizer.weight_decay, 0.01);
  EXPECT_EQ(config.training.max_grad_norm, 0);
  EXPECT_EQ(config.training.logging_steps, 1);
  EXPECT_EQ(value_text(config, "data.loss_on"), "everything");  // train_on_input of alpaca_dataset
  EXPECT_EQ(config.data.max_truncated, 0);                      // no max_seq_len: nothing is cut
  EXPECT_EQ(value_text(config, "save.strategy"), "epoch");
  EXPECT_EQ(value_text(config, "data.eval"), "[b.jsonl]");
  std::string text = kTorchtune;
  text.replace(text.find("AdamW\n"), 6, "Adam\n");
  EXPECT_EQ(this->config(text).optimizer.weight_decay, 0);
  text.replace(text.find("  lr: 3e-4\n"), 11, "  betas: [0.8, 0.95]\n");
  EXPECT_EQ(this->config(text).optimizer.learning_rate, 0.001);
  EXPECT_EQ(this->config(text).optimizer.adam_beta2, 0.95);
}

TEST_F(ImportConfigTest, ServicesThatGetTheMetrics) {
  using Names = std::vector<std::string>;
  const auto axolotl = [&](const std::string& more) {
    return config(std::string(kAxolotl) + more).observe.report_to;
  };
  EXPECT_EQ(axolotl("use_wandb: true\nwandb_project: p\nuse_mlflow: true\n"), (Names{"wandb", "mlflow"}));
  EXPECT_EQ(axolotl("use_wandb: false\nwandb_project:\n"), Names{});
  EXPECT_TRUE(contains(all_of(imported(std::string(kAxolotl) + "wandb_project: p\n")), "WANDB_PROJECT=p"));
  const auto torchtune = [](const std::string& logger) {
    std::string text = kTorchtune;
    return text.replace(text.find("DiskLogger"), std::string("DiskLogger").size(), logger);
  };
  EXPECT_EQ(config(torchtune("WandBLogger\n  project: p")).observe.report_to, Names{"wandb"});
  EXPECT_TRUE(contains(all_of(imported(torchtune("WandBLogger\n  project: p"))), "metric_logger.project"));
  const std::string comet = torchtune("CometLogger");
  EXPECT_EQ(config(comet).observe.report_to, Names{});
  EXPECT_TRUE(contains(all_of(imported(comet)), "Comet: observe.report_to may be wandb, mlflow or trackio"));
}

}  // namespace
}  // namespace trainer
