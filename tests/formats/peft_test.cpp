#include "trainer/formats/peft.h"

#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"

#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::contains;
using test::error_message;
using test::TemporaryDirectory;

const fs::path kAdapter = fs::path(SOURCE_DIR) / "tests/goldens/formats/t5_adapter";

// The golden's adapter_config.json with some keys changed.
AdapterConfig read_with(const json& changes) {
  TemporaryDirectory directory;
  json config = json::parse(read_file(kAdapter / "adapter_config.json"));
  config.update(changes);
  write_atomically(directory / "adapter_config.json", config.dump());
  return read_adapter_config(directory.path());
}

TEST(AdapterConfig, ReadsWhatPeftWrote) {
  ASSERT_TRUE(is_adapter_directory(kAdapter));
  const AdapterConfig config = read_adapter_config(kAdapter);
  EXPECT_EQ(config.base_model_name_or_path, "models/tiny-t5");
  EXPECT_EQ(config.task_type, "SEQ_2_SEQ_LM");
  EXPECT_EQ(config.r, 4);
  EXPECT_EQ(config.lora_alpha, 12);
  EXPECT_EQ(config.lora_dropout, 0.05);
  EXPECT_TRUE(config.use_rslora);
  const auto& targets = std::get<std::vector<std::string>>(config.target_modules);
  EXPECT_EQ(std::set<std::string>(targets.begin(), targets.end()), (std::set<std::string>{"q", "v"}));
  EXPECT_EQ(config.modules_to_save, std::vector<std::string>{"lm_head"});
}

TEST(AdapterConfig, ReadsTheOtherFormsOfItsKeys) {
  EXPECT_EQ(std::get<std::string>(read_with({{"target_modules", "all-linear"}}).target_modules),
            "all-linear");
  EXPECT_TRUE(
      std::get<std::vector<std::string>>(read_with({{"target_modules", nullptr}}).target_modules).empty());
  EXPECT_EQ(read_with({{"task_type", nullptr}}).task_type, "");
  EXPECT_EQ(read_with({{"lora_alpha", 1.5}}).lora_alpha, 1.5);
  EXPECT_EQ(read_with({{"init_lora_weights", "gaussian"}}).r, 4);
  EXPECT_EQ(read_with({{"loftq_config", {{"loftq_bits", 4}}}}).r, 4);
}

TEST(AdapterConfig, RefusesByNameWhatChangesTheMathematics) {
  const std::vector<std::pair<const char*, json>> refused{
      {"layer_replication", json::array({json::array({0, 4}), json::array({2, 5})})},
      {"fan_in_fan_out", true},
      {"use_qalora", true},
      {"use_bdlora", {{"nblocks", 2}}},
      {"trainable_token_indices", {1, 2}},
      {"target_parameters", {"experts.down_proj"}},
      {"alora_invocation_tokens", {5}},
      {"megatron_config", {{"a", 1}}},
      {"init_lora_weights", "pissa"},
      {"init_lora_weights", "pissa_niter_4"},
      {"init_lora_weights", "olora"},
      {"init_lora_weights", "loftq"},
      {"peft_type", "IA3"},
      {"peft_type", nullptr}};
  for (const auto& [key, value] : refused) {
    const std::string message = error_message<FormatError>([&, k = key, v = value] { read_with({{k, v}}); });
    EXPECT_TRUE(contains(message, "adapter_config.json")) << message;
    EXPECT_TRUE(contains(message, key)) << key << ": " << message;
  }
}

TEST(AdapterConfig, NamesAllProblemsAtOnce) {
  const std::string message = error_message<FormatError>([] {
    read_with({{"use_qalora", true}, {"fan_in_fan_out", true}});
  });
  EXPECT_TRUE(contains(message, "use_qalora: true")) << message;
  EXPECT_TRUE(contains(message, "fan_in_fan_out: true")) << message;
}

TEST(AdapterConfig, RefusesValuesThatMakeNoSense) {
  const std::vector<std::pair<const char*, json>> refused{{"r", 0},
                                                          {"r", -1},
                                                          {"r", 2.5},
                                                          {"r", "8"},
                                                          {"r", 1e300},
                                                          {"lora_alpha", "x"},
                                                          {"lora_dropout", 1.0},
                                                          {"lora_dropout", -0.1},
                                                          {"use_rslora", 1},
                                                          {"task_type", 3},
                                                          {"target_modules", 7},
                                                          {"target_modules", {1}},
                                                          {"modules_to_save", "lm_head"},
                                                          {"bias", "some"},
                                                          {"rank_pattern", {{"q", 0}}},
                                                          {"rank_pattern", {{"q", 1.5}}},
                                                          {"rank_pattern", {"q"}},
                                                          {"alpha_pattern", {{"q", "x"}}},
                                                          {"layers_to_transform", "0"},
                                                          {"layers_pattern", "layers"},
                                                          {"exclude_modules", 7}};
  for (const auto& [key, value] : refused) {
    const std::string message = error_message<FormatError>([&, k = key, v = value] { read_with({{k, v}}); });
    EXPECT_TRUE(contains(message, key)) << key << ": " << message;
  }
}

TEST(AdapterConfig, ReadsWhatVariesFromModuleToModule) {
  const AdapterConfig config = read_with({{"rank_pattern", {{"^encoder.*v", 2}, {"q", 8}}},
                                          {"alpha_pattern", {{"k", 1.5}}},
                                          {"layers_to_transform", 1},
                                          {"layers_pattern", "block"},
                                          {"exclude_modules", ".*decoder.*"},
                                          {"bias", "lora_only"}});
  EXPECT_EQ(config.rank_pattern, (ModulePatterns<int64_t>{{"^encoder.*v", 2}, {"q", 8}}));
  EXPECT_EQ(config.alpha_pattern, (ModulePatterns<double>{{"k", 1.5}}));
  EXPECT_EQ(config.layers_to_transform, std::vector<int64_t>{1});
  EXPECT_EQ(config.layers_pattern, std::vector<std::string>{"block"});
  EXPECT_EQ(std::get<std::string>(config.exclude_modules), ".*decoder.*");
  EXPECT_EQ(config.bias, AdapterBias::lora_only);
  EXPECT_EQ(read_with({{"layers_to_transform", {0, 2}}}).layers_to_transform, (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(std::get<std::vector<std::string>>(read_with({{"exclude_modules", {"v"}}}).exclude_modules),
            std::vector<std::string>{"v"});
}

TEST(AdapterConfig, RefusesWhatPeftDoesNotCombine) {
  EXPECT_TRUE(contains(error_message<FormatError>([] {
                         read_with({{"layers_to_transform", 1}, {"target_modules", "all-linear"}});
                       }),
                       "layers_to_transform"));
  EXPECT_TRUE(contains(error_message<FormatError>([] {
                         read_with({{"use_dora", true}, {"lora_bias", true}});
                       }),
                       "use_dora and lora_bias"));
}

TEST(AdapterConfig, PatternsAreTriedInTheOrderOfTheFile) {
  TemporaryDirectory directory;
  AdapterConfig config;
  config.rank_pattern = {{"q", 2}, {"b", 3}, {"a", 4}};
  write_adapter_config(directory.path(), config);
  EXPECT_EQ(read_adapter_config(directory.path()).rank_pattern, config.rank_pattern);
}

TEST(AdapterConfig, WhatIsWrittenIsReadBack) {
  TemporaryDirectory directory;
  AdapterConfig config;
  config.base_model_name_or_path = "some/model";
  config.task_type = "CAUSAL_LM";
  config.r = 64;
  config.lora_alpha = 128;
  config.lora_dropout = 0.1;
  config.target_modules = std::vector<std::string>{"q_proj", "v_proj"};
  config.modules_to_save = {"lm_head", "embed_tokens"};
  config.use_rslora = true;
  config.use_dora = true;
  config.bias = AdapterBias::all;
  config.alpha_pattern = {{"layers.0.*q_proj", 0.5}, {"v_proj", 32}};
  config.layers_to_transform = {0, 5};
  config.layers_pattern = {"layers"};
  config.exclude_modules = std::vector<std::string>{"layers.0.self_attn.q_proj"};
  config.ensure_weight_tying = true;
  write_adapter_config(directory.path(), config);
  const AdapterConfig read = read_adapter_config(directory.path());
  EXPECT_EQ(read.base_model_name_or_path, config.base_model_name_or_path);
  EXPECT_EQ(read.task_type, config.task_type);
  EXPECT_EQ(read.r, config.r);
  EXPECT_EQ(read.lora_alpha, config.lora_alpha);
  EXPECT_EQ(read.lora_dropout, config.lora_dropout);
  EXPECT_EQ(read.target_modules, config.target_modules);
  EXPECT_EQ(read.modules_to_save, config.modules_to_save);
  EXPECT_EQ(read.use_rslora, config.use_rslora);
  EXPECT_EQ(read.use_dora, config.use_dora);
  EXPECT_EQ(read.bias, config.bias);
  EXPECT_EQ(read.alpha_pattern, config.alpha_pattern);
  EXPECT_EQ(read.layers_to_transform, config.layers_to_transform);
  EXPECT_EQ(read.layers_pattern, config.layers_pattern);
  EXPECT_EQ(read.exclude_modules, config.exclude_modules);
  EXPECT_EQ(read.ensure_weight_tying, config.ensure_weight_tying);

  config.layers_to_transform.clear();
  config.layers_pattern.clear();
  config.exclude_modules = ".*layers.3.*";
  config.target_modules = ".*decoder.*(q|v)";
  write_adapter_config(directory.path(), config);
  EXPECT_EQ(read_adapter_config(directory.path()).target_modules, config.target_modules);
  EXPECT_EQ(read_adapter_config(directory.path()).exclude_modules, config.exclude_modules);
}

// PEFT warns of a key that it does not know, and expects the values of its own.
TEST(AdapterConfig, EveryWrittenKeyHasTheValueThatPeftWrites) {
  TemporaryDirectory directory;
  write_adapter_config(directory.path(), read_adapter_config(kAdapter));
  const json ours = json::parse(read_file(directory / "adapter_config.json"));
  const json theirs = json::parse(read_file(kAdapter / "adapter_config.json"));
  for (const auto& [key, value] : ours.items()) {
    ASSERT_TRUE(theirs.contains(key)) << key;
    EXPECT_EQ(value, theirs[key]) << key;
    EXPECT_EQ(value.type(), theirs[key].type()) << key;
  }
}

TEST(AdapterWeights, NamesLoseThePrefixOfPeft) {
  const SafetensorsFile file = read_adapter_weights(kAdapter);
  EXPECT_EQ(file.tensors.at("encoder.block.0.layer.0.SelfAttention.q.lora_A.weight").shape,
            (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(file.tensors.at("decoder.block.0.layer.1.EncDecAttention.v.lora_B.weight").shape,
            (std::vector<int64_t>{8, 4}));
  EXPECT_EQ(file.tensors.at("lm_head.weight").shape, (std::vector<int64_t>{12, 8}));
  EXPECT_EQ(file.tensors.size(), 6u * 2 + 1);
}

TEST(AdapterWeights, WrittenAgainTheFileHoldsTheSameTensors) {
  TemporaryDirectory directory;
  write_adapter_weights(directory.path(), read_adapter_weights(kAdapter).tensors);
  const auto ours = read_safetensors(directory / "adapter_model.safetensors");
  const auto theirs = read_safetensors(kAdapter / "adapter_model.safetensors");
  ASSERT_EQ(ours.tensors.size(), theirs.tensors.size());
  for (const auto& [name, view] : theirs.tensors) {
    const TensorView& our_view = ours.tensors.at(name);
    EXPECT_EQ(our_view.shape, view.shape);
    EXPECT_TRUE(
        std::equal(view.data, view.data + view.nbytes, our_view.data, our_view.data + our_view.nbytes));
  }
}

TEST(AdapterWeights, RefusesAPickleWithAdviceAndNamesWhatIsMissing) {
  TemporaryDirectory directory;
  const auto read_error = [&] {
    return error_message<FormatError>([&] { read_adapter_weights(directory.path()); });
  };
  EXPECT_TRUE(contains(read_error(), "adapter_model.safetensors: is missing"));
  write_atomically(directory / "adapter_model.bin", "pickle");
  EXPECT_TRUE(contains(read_error(), "python3 -c"));
}

TEST(AdapterWeights, RefusesTensorsThatAreNotAnAdapters) {
  TemporaryDirectory directory;
  write_safetensors(directory / "adapter_model.safetensors",
                    {{"encoder.weight", {Dtype::u8, {1}, [](std::ostream& out) { out << 'x'; }}}});
  EXPECT_TRUE(contains(error_message<FormatError>([&] { read_adapter_weights(directory.path()); }),
                       "'encoder.weight'"));
}

}  // namespace
}  // namespace trainer
