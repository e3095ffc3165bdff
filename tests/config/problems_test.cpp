// The errors that a wrong configuration gives.
#include <fstream>

#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/config/load.h"

#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

using test::contains;

class ConfigProblems : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) { std::ofstream(directory_ / name) << text; }

  // The message, with the directory taken out of it.
  std::string message(const std::string& text, const std::vector<std::string>& overrides = {}) {
    write("my.yaml", text);
    std::string message =
        test::error_message<ConfigError>([&] { load_config(directory_ / "my.yaml", overrides); });
    const std::string prefix = directory_.path().string() + "/";
    for (size_t at = message.find(prefix); at != std::string::npos; at = message.find(prefix)) {
      message.erase(at, prefix.size());
    }
    return message;
  }

  static std::string override_message(const std::string& override) {
    return test::error_message<ConfigError>([&] { load_config(std::nullopt, {override}); });
  }

  test::TemporaryDirectory directory_;
};

TEST_F(ConfigProblems, AllOfThemComeAtOnceInTheirOrder) {
  EXPECT_EQ(message(R"(modle: {path: x}
training:
  batch_size: eight
  dropuot: 0.1
  label_smoothing: 1.5
  effective_batch_size: 4
  gradient_accumulation_steps: 2
)",
                    {"lora.r=0"}),
            "6 problems in the configuration:\n"
            "  my.yaml:1:1: modle: unknown key; did you mean model?\n"
            "  my.yaml:3:15: training.batch_size: expected an integer, fit or auto, found 'eight'\n"
            "  my.yaml:4:3: training.dropuot: unknown key; did you mean training.dropout?\n"
            "  my.yaml:5:20: training.label_smoothing: must be at least 0 and below 1, found 1.5\n"
            "  override 'lora.r=0': lora.r: must be at least 1, found 0\n"
            "  my.yaml:6:25: training.effective_batch_size: training.gradient_accumulation_steps is set as "
            "well; keep only one of the two");
}

TEST_F(ConfigProblems, AKeyInTheWrongSectionIsShownItsPlace) {
  EXPECT_EQ(message("learning_rate: 5e-5\n"),
            "my.yaml:1:1: learning_rate: unknown key; did you mean optimizer.learning_rate?");
  EXPECT_TRUE(contains(message("training: {weight_decay: 0}\n"), "did you mean optimizer.weight_decay?"));
  EXPECT_TRUE(contains(message("training: {learning-rate: 0}\n"), "did you mean optimizer.learning_rate?"));
  EXPECT_TRUE(
      contains(message("training: {lora: {r: 3}}\n"), "lora is a section of its own, at the top level"));
  EXPECT_TRUE(contains(message("training.batch_size: 8\n"), "a key stands inside its section"));
  EXPECT_TRUE(contains(message("lora: {rr: 8}\n"), "lora has r, lora_alpha,"));
}

TEST_F(ConfigProblems, ShortNamesThatAreUnclearAreRefusedWithTheFullOnes) {
  for (const auto& [override, words] :
       {std::pair("name=dpo", "name: is in several sections; write objective.name or optimizer.name"),
        std::pair("label_smoothing=0.1", "objective.label_smoothing or training.label_smoothing"),
        std::pair("max_samples=10", "data.max_samples or evaluation.max_samples"),
        std::pair("steps=100", "steps: may mean several things; write save.steps or "),
        std::pair("steps=100", "training.max_steps"), std::pair("strategy=no", "training.eval_strategy"),
        std::pair("path=x", "write model.path"),
        std::pair("temperature=0.7", "write objective.temperature")}) {
    const std::string said = override_message(override);
    EXPECT_TRUE(contains(said, words)) << override << ": " << said;
  }
}

TEST_F(ConfigProblems, NamesOfOtherTrainersAreTranslated) {
  const std::vector<std::pair<std::string, std::string>> names{
      {"per_device_train_batch_size", "training.batch_size"},
      {"per_device_eval_batch_size", "training.eval_batch_size"},
      {"evaluation_strategy", "training.eval_strategy"},
      {"save_steps", "save.steps"},
      {"save_total_limit", "save.total_limit"},
      {"cutoff_len", "data.max_length"},
      {"lora_rank", "lora.r"},
      {"lora_target", "lora.target_modules"},
      {"model_name_or_path", "model.path"},
      {"micro_batch_size", "training.batch_size"},
      {"num_epochs", "training.num_train_epochs"},
      {"sequence_len", "data.max_length"},
      {"base_model", "model.path"},
      {"allow_tf32", "training.tf32"},
      {"max_split_size", "memory.max_split_size_mb"},
      {"gc_threshold", "memory.garbage_collection_threshold"},
      {"gpu_wait_timeout", "gpu.gpu_wait_timeout_minutes"},
  };
  for (const auto& [foreign, ours] : names) {
    EXPECT_EQ(message(foreign + ": 8\n"),
              "my.yaml:1:1: " + foreign + ": unknown key; here it is called " + ours);
    EXPECT_TRUE(contains(message("training:\n  " + foreign + ": 8\n"), "here it is called " + ours))
        << foreign;
    EXPECT_TRUE(contains(override_message(foreign + "=8"), "here it is called " + ours)) << foreign;
  }
  EXPECT_TRUE(contains(message("bf16: true\n"), "write model.dtype: bf16"));
  EXPECT_TRUE(
      contains(message("gradient_checkpointing: true\n"), "did you mean memory.gradient_checkpointing?"));
  EXPECT_TRUE(contains(message("num_train_epochs: 1\n"), "did you mean training.num_train_epochs?"));
}

TEST_F(ConfigProblems, ALimitIsASizeOrAShare) {
  for (const char* text : {"18GB", "16GiB", "1.5 GB", "900MB", "0.9", "1", "1.0", ""})
    EXPECT_NO_THROW(load_config(std::nullopt, std::vector<std::string>{std::string("memory.limit=") + text}))
        << text;
  for (const char* text : {"18", "18gb", "1.5", "-1GB", "GB", "half"})
    EXPECT_TRUE(contains(message(std::string("memory: {limit: ") + text + "}\n"), "a size such as 18GB"))
        << text;
}

TEST_F(ConfigProblems, OffloadTakesPartsOfARun) {
  EXPECT_TRUE(
      contains(message("memory: {offload: [optimizer, weigths]}\n"),
               "memory.offload: expected auto, or a list of optimizer, weights and activations, found "
               "'weigths'"));
  EXPECT_TRUE(contains(message("memory: {offload: true}\n"), "expected auto, or a list of optimizer"));
  EXPECT_TRUE(contains(message("memory: {offload: [auto]}\n"), "found 'auto'"));
}

TEST_F(ConfigProblems, ParallelTakesANumberOfGpusOrAll) {
  for (const char* text : {"0", "-2", "some", "[0, 1]"}) {
    EXPECT_TRUE(contains(message(std::string("parallel: {gpus: ") + text + "}\n"), "parallel.gpus:")) << text;
  }
  EXPECT_TRUE(contains(message("parallel: {gpus: auto}\n"), "expected an integer or all, found 'auto'"));
  EXPECT_TRUE(contains(message("parallel: {timeout: 0}\n"), "must be at least 1"));
  EXPECT_TRUE(contains(message("parallel: {shard: full}\n"), "write all"));
}

TEST_F(ConfigProblems, ShardedWeightsAreNeitherOffloadedNorDecomposed) {
  for (const char* other :
       {"memory: {offload: [weights]}\n", "memory: {offload: auto}\n", "lora: {use_dora: true}\n"}) {
    EXPECT_TRUE(
        contains(message(std::string("parallel: {shard: all}\n") + other), "parallel.shard: all does not go"))
        << other;
  }
}

TEST_F(ConfigProblems, KeysOfOtherLaunchersLeadToParallel) {
  for (const char* name : {"world_size", "num_processes", "nproc_per_node"}) {
    for (const std::string section : {"", "parallel: {", "training: {"}) {
      const std::string text = section + name + ": 2" + (section.empty() ? "\n" : "}\n");
      EXPECT_TRUE(contains(message(text), "did you mean parallel.gpus?")) << text;
    }
  }
  for (const char* name : {"fsdp", "deepspeed", "zero_stage"})
    EXPECT_TRUE(contains(override_message(name + std::string("=2")), "did you mean parallel.shard?")) << name;
}

TEST_F(ConfigProblems, WhatIsNotThereYetIsSaid) {
  for (const char* text : {"early_stopping_threshold: 0.1\n", "optimizer: {lr_scheduler_kwargs: 1}\n"}) {
    EXPECT_TRUE(contains(message(text), "not supported by this version")) << text;
  }
}

TEST_F(ConfigProblems, KeysOfQuantisationElsewhereLeadToModelQuantize) {
  for (const char* text :
       {"load_in_4bit: true\n", "load_in_8bit: true\n", "model: {quantization_bit: 4}\n"}) {
    EXPECT_TRUE(contains(message(text), "write model.quantize: nf4")) << text;
  }
}

TEST_F(ConfigProblems, WrongTypesNameWhatWasExpectedAndFound) {
  EXPECT_TRUE(contains(message("seed: \"8\"\n"), "1:7: seed: expected an integer, found the text '8'"));
  EXPECT_TRUE(contains(message("seed: 1.5\n"), "expected an integer, found '1.5'"));
  EXPECT_TRUE(contains(message("seed: 99999999999999999999\n"), "expected an integer"));
  EXPECT_TRUE(contains(message("seed:\n"), "seed: expected an integer, found nothing; leave the line out"));
  EXPECT_TRUE(contains(message("optimizer: {learning_rate: [1]}\n"), "expected a number, found a list"));
  EXPECT_TRUE(contains(message("optimizer: {weight_decay: .nan}\n"), "expected a number, found '.nan'"));
  EXPECT_TRUE(contains(message("memory: {gradient_checkpointing: yes}\n"),
                       "expected true, false, light, fit, auto or an integer, found 'yes'"));
  EXPECT_TRUE(contains(message("model: {path: {a: b}}\n"), "expected text, found a mapping"));
  EXPECT_TRUE(contains(message("data: {train: [[a]]}\n"),
                       "expected a path, a list of paths or of {path: PATH, weight: NUMBER, loss_weight: "
                       "NUMBER}, found a list"));
  EXPECT_TRUE(contains(message("data: {train: [{path: a, weight: 1e12}]}\n"),
                       "a weight must be above 0 and at most 1,000,000, found '1e12'"));
  EXPECT_TRUE(
      contains(message("training: 3\n"), "training: is a section: expected keys inside it, found '3'"));
  EXPECT_TRUE(contains(message("device: cuda:x\n"), "expected auto, cpu, cuda or cuda:N, found 'cuda:x'"));
  EXPECT_TRUE(contains(message("model: {dtype: fp8}\n"), "expected one of auto, bf16, fp32, found 'fp8'"));
  EXPECT_TRUE(contains(message("model: {dtype: fp16}\n"), "fp16 gives NaN on T5"));
  EXPECT_TRUE(contains(message("optimizer: {lr_scheduler_type: cosin}\n"), "did you mean cosine?"));
}

TEST_F(ConfigProblems, DamagedYamlIsShownItsPlace) {
  EXPECT_TRUE(contains(message("training:\n  batch_size: 2\n  batch_size: 3\n"),
                       "my.yaml:3:3: training.batch_size: given twice; the first is at line 2"));
  EXPECT_TRUE(contains(message("training:\n  batch_size: 8\n batch: 7\n"), "my.yaml:3:2: malformed YAML"));
  EXPECT_TRUE(
      contains(message("training:\n\tbatch_size: 8\n"), "my.yaml:2:12: malformed YAML: indented with a tab"));
  EXPECT_TRUE(contains(message("data: {input: a: b}\n"), "my.yaml:1:16: malformed YAML"));
  EXPECT_TRUE(contains(message("data:\n  input: \"a\nseed: 3\n"), "a quote that is never closed"));
  EXPECT_TRUE(contains(message("- a\n"), "my.yaml:1:1: expected sections and keys"));
  EXPECT_TRUE(
      contains(message("seed: 1\n---\nseed: 2\n"), "my.yaml:2:1: malformed YAML: text that is no part"));
  // Files of other kinds.
  EXPECT_TRUE(contains(message("\x1f\x8b\x08"), "my.yaml: is compressed with gzip; unpack it"));
  EXPECT_TRUE(contains(message("\x28\xb5\x2f\xfd"), "my.yaml: is compressed with zstd; unpack it"));
  EXPECT_TRUE(
      contains(message(std::string("\xff\xfes\0e\0", 6)), "my.yaml: is UTF-16; save the file as UTF-8"));
  EXPECT_TRUE(
      contains(message(std::string("seed: 1\n\0", 9)), "my.yaml: is no text: it has a byte 0 at line 2"));
  EXPECT_TRUE(contains(message("# caf\xe9\n"), "my.yaml: is not UTF-8 at line 1"));
  EXPECT_TRUE(
      contains(message("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"), "git lfs pull"));
  EXPECT_TRUE(contains(message(",odel:\n  path: x\n"), "my.yaml:1:1: malformed YAML: text that is no part"));
  EXPECT_TRUE(contains(message("seed: 1\n]\nseed: 2\n"), "my.yaml:2:1: malformed YAML"));
  EXPECT_TRUE(contains(message("lora:\nseed: 1\n"), "my.yaml:1:1: lora: is empty: write `lora: {}`"));
}

TEST_F(ConfigProblems, ExtendsNamesWhatIsWrongWhere) {
  write("a.yaml", "extends: b\n");
  write("b.yaml", "seed: x\nextends: a\n");
  EXPECT_EQ(
      message("extends: a\n"),
      "2 problems in the configuration:\n"
      "  b.yaml:1:7: seed: expected an integer, found 'x'\n"
      "  b.yaml:2:10: extends: files extend each other in a circle: my.yaml -> a.yaml -> b.yaml -> a.yaml");
  EXPECT_EQ(message("seed: 1\nextends: nope\n"), "my.yaml:2:10: nope: there is no such file");
  EXPECT_TRUE(contains(message("extends: {a: b}\n"), "expected a path or a list of paths, found a mapping"));
}

TEST_F(ConfigProblems, OverridesAreQuoted) {
  EXPECT_EQ(override_message("training.batch_sise=8"),
            "override 'training.batch_sise=8': training.batch_sise: unknown key; did you mean "
            "training.batch_size?");
  EXPECT_EQ(override_message("batch_size"), "unexpected argument 'batch_size'; settings are key=value");
  EXPECT_TRUE(
      contains(override_message("my.yaml"),
               "unexpected argument 'my.yaml'; to give a configuration file, write --config my.yaml"));
  EXPECT_TRUE(contains(override_message("training={batch_size: [1"), "malformed value"));
  EXPECT_TRUE(contains(override_message("lora.target_modules=q,v"), "a list needs brackets: [q,v]"));
}

TEST_F(ConfigProblems, AValueForASectionIsShownItsKey) {
  EXPECT_TRUE(contains(message("adapter: qlora\n"), "lora: {} and model.quantize: nf4"));
  EXPECT_TRUE(contains(override_message("adapter=qlora"), "lora={} model.quantize=nf4"));
  EXPECT_TRUE(contains(message("optimizer: paged_adamw_32bit\n"), "write optimizer.name: adamw"));
  EXPECT_TRUE(contains(message("optimizer: adamw_bnb_8bit\n"), "write optimizer.name: adamw_8bit"));
  EXPECT_TRUE(contains(override_message("lora=true"), "as an override: lora={}"));
  EXPECT_TRUE(contains(override_message("model=some/where"), "write model.path=some/where"));
  EXPECT_TRUE(contains(advice_for_flag("model", "some/where"), "model.path=some/where"));
}

TEST_F(ConfigProblems, AMissingFileIsNamed) {
  EXPECT_TRUE(contains(test::error_message<ConfigError>([&] { load_config(directory_ / "nope.yaml", {}); }),
                       "nope.yaml: there is no such file"));
  EXPECT_TRUE(contains(test::error_message<ConfigError>([&] { load_config(directory_.path(), {}); }),
                       "is a directory, not a file"));
}

TEST(AdviceForFlag, KnowsKeysAndNamesOfOtherTrainers) {
  const std::string start = "keys of the configuration are written without dashes: ";
  EXPECT_EQ(advice_for_flag("training.batch_size", "4"), start + "training.batch_size=4");
  EXPECT_EQ(advice_for_flag("learning-rate", "1e-4"), start + "optimizer.learning_rate=1e-4");
  EXPECT_EQ(advice_for_flag("per_device_train_batch_size", ""), start + "training.batch_size=VALUE");
  EXPECT_TRUE(contains(advice_for_flag("fp16", ""), "model.dtype: bf16"));
  EXPECT_EQ(advice_for_flag("colour", "red"), "");
}

// Each level doubles what is read.
TEST_F(ConfigProblems, FilesThatExtendWithoutEndAreRefused) {
  write("f0.yaml", "seed: 1\n");
  for (int i = 1; i < 20; i++)
    write("f" + std::to_string(i) + ".yaml",
          "extends: [f" + std::to_string(i - 1) + ", f" + std::to_string(i - 1) + "]\n");
  EXPECT_TRUE(contains(message("extends: f19\n"), "extends: more than 32 levels or 256 files in all"));
}

TEST_F(ConfigProblems, NumbersThatNobodyMeansAreRefused) {
  for (const char* text : {"batch_size=4611686018427387904", "data.max_length=9223372036854775807",
                           "max_source_length=99999999999", "max_target_length=99999999999",
                           "num_train_epochs=1e18", "num_workers=4096", "num_threads=5000", "lora.r=1000000",
                           "lora.lora_alpha=1e308", "eval_batch_size=4611686018427387904", "prefetch=1000000",
                           "effective_batch_size=4611686018427387904"}) {
    EXPECT_TRUE(contains(override_message(text), "at most ")) << text;
  }
  EXPECT_TRUE(
      contains(test::error_message<ConfigError>([] {
                 load_config(std::nullopt, {"batch_size=1000000", "gradient_accumulation_steps=1000000"});
               }),
               "an update of more than 10,000,000 samples"));
}

TEST_F(ConfigProblems, KeysOfAnotherOptimizerAreNamedWithTheirLine) {
  EXPECT_EQ(message("optimizer:\n  name: adafactor\n  adam_beta2: 0.99\n"),
            "my.yaml:3:15: optimizer.adam_beta2: has no effect with optimizer.name: adafactor; remove it (as "
            "an override: adam_beta2=null), or change optimizer.name");
  EXPECT_EQ(message("optimizer: {decay_rate: -0.5}\n"),
            "my.yaml:1:25: optimizer.decay_rate: has no effect without optimizer.name: adafactor; remove it "
            "(as an override: decay_rate=null), or change optimizer.name");
  EXPECT_TRUE(contains(message("optimizer: {beta1: 0.9}\n"), "did you mean optimizer.adam_beta1?"));
  EXPECT_TRUE(contains(message("optimizer: {eps: [1e-30, 1e-3]}\n"), "did you mean optimizer.adam_epsilon?"));
}

TEST_F(ConfigProblems, RelativeStepsHaveNoOtherLearningRate) {
  const std::string adafactor = "optimizer.name=adafactor";
  EXPECT_TRUE(contains(message("optimizer: {relative_step: true, learning_rate: 1.0e-3}\n", {adafactor}),
                       "optimizer.learning_rate: has no effect with optimizer.relative_step: true"));
  EXPECT_TRUE(contains(message("optimizer: {relative_step: true, warmup_steps: 5}\n", {adafactor}),
                       "optimizer.warmup_steps: has no effect with optimizer.relative_step: true"));
  EXPECT_TRUE(contains(message("optimizer: {warmup_init: true}\n", {adafactor}),
                       "optimizer.warmup_init: needs optimizer.relative_step: true"));
}

// As other keys that an override takes the effect of: they are named, and are no mistake.
TEST_F(ConfigProblems, AnOverrideMayTakeTheEffectOfWhatAFileSays) {
  const auto idle = [&](const std::string& text, const std::vector<std::string>& overrides) {
    write("my.yaml", text);
    std::vector<std::string> found;
    for (const IdleKey& key : keys_without_effect(load_config(directory_ / "my.yaml", overrides)))
      found.push_back(key.key + (key.overridden ? " overridden" : ""));
    return found;
  };
  using Names = std::vector<std::string>;
  const std::string rates =
      "optimizer: {learning_rate: 1.0e-3, lr_scheduler_type: cosine, warmup_steps: 5}\n";
  EXPECT_EQ(idle(rates, {"optimizer.name=adafactor", "relative_step=true"}),
            (Names{"optimizer.learning_rate overridden", "optimizer.lr_scheduler_type overridden",
                   "optimizer.warmup_steps overridden"}));
  EXPECT_EQ(idle("optimizer: {adam_beta2: 0.99}\n", {"optimizer.name=adafactor"}),
            Names{"optimizer.adam_beta2 overridden"});
  EXPECT_EQ(idle("optimizer: {name: adafactor, decay_rate: -0.5}\n", {"optimizer.name=adamw"}),
            Names{"optimizer.decay_rate overridden"});
  // Both at the same place, or the other way round.
  EXPECT_TRUE(contains(message("", {"optimizer.name=adafactor", "relative_step=true", "learning_rate=0.1"}),
                       "optimizer.learning_rate: has no effect with optimizer.relative_step: true"));
  EXPECT_TRUE(contains(message("optimizer: {name: adafactor, relative_step: true}\n", {"learning_rate=0.1"}),
                       "optimizer.learning_rate: has no effect with optimizer.relative_step: true"));
}

TEST_F(ConfigProblems, KeysOfWhatIsSwitchedOffAreNamed) {
  EXPECT_TRUE(contains(message("model: {double_quant: false}\n"),
                       "model.double_quant: has no effect without model.quantize: nf4"));
  EXPECT_TRUE(contains(message("memory: {offload_dir: /fast}\n"),
                       "memory.offload_dir: has no effect with memory.offload: []"));
}

TEST_F(ConfigProblems, AnEmptyValueIsToldTheDefaultsThatFollowOtherKeys) {
  EXPECT_TRUE(contains(message("optimizer:\n  name: adafactor\n  learning_rate:\n"),
                       "leave the line out for the default, 1.0e-05 (1.0e-04 for T5; 0.001 with "
                       "optimizer.name: adafactor and not for decoders; 2.0e-04 with lora; 1.0e-06 with "
                       "objective.name: dpo or ipo or orpo or kto or simpo or cpo; 5.0e-06 with "
                       "objective.name: dpo or ipo or orpo or kto or simpo or cpo and with lora)"));
}

TEST_F(ConfigProblems, APairIsAListOfTwoNumbers) {
  for (const char* value : {"0.1", "[1e-30]", "[1, 2, 3]", "{a: 1, b: 2}"}) {
    EXPECT_TRUE(contains(message(std::string("optimizer: {name: adafactor, eps: ") + value + "}\n"),
                         "optimizer.eps: expected a list of two numbers, found "))
        << value;
  }
  EXPECT_TRUE(contains(message("optimizer: {name: adafactor, eps: [1, 0]}\n"), "must be above 0, found 0"));
}

}  // namespace
}  // namespace trainer
