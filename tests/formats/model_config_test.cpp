#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"

#include "formats/model_limits.h"
#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::contains;
using test::error_message;
using test::TemporaryDirectory;

const fs::path kGoldens = fs::path(SOURCE_DIR) / "tests/goldens/formats";

json read_config(const std::string& text) {
  TemporaryDirectory directory;
  write_atomically(directory / "config.json", text);
  return read_model_config(directory.path());
}

std::string config_error(const std::string& text) {
  const std::string message = error_message<FormatError>([&] { read_config(text); });
  EXPECT_TRUE(contains(message, "config.json")) << message;
  return message;
}

TEST(ReadModelConfig, AVersion5FileReadsLikeVersion4) {
  const json config = read_model_config(kGoldens / "llama_sharded");
  EXPECT_EQ(config["model_type"], "llama");
  EXPECT_EQ(config["torch_dtype"], "bfloat16");
  EXPECT_FALSE(config.contains("dtype"));
  EXPECT_EQ(config["rope_theta"], 500000.0);
  EXPECT_FALSE(config.contains("rope_parameters"));
  EXPECT_EQ(config["rope_scaling"],
            json::parse(R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
      "high_freq_factor": 4.0, "original_max_position_embeddings": 16})"));
  EXPECT_EQ(config["hidden_size"], 8);
}

TEST(ReadModelConfig, AVersion4FileStaysAsItIs) {
  const std::string text = R"({"model_type": "qwen2", "torch_dtype": "bfloat16", "rope_theta": 1000000.0,
      "rope_scaling": null, "sliding_window": 32768})";
  EXPECT_EQ(read_config(text), json::parse(text));
}

TEST(ReadModelConfig, TheDefaultRopeHasNoScaling) {
  const json config = read_config(
      R"({"model_type": "qwen3", "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"}})");
  EXPECT_EQ(config, json::parse(R"({"model_type": "qwen3", "rope_theta": 1000000})"));
}

TEST(ReadModelConfig, TheOldNameOfTheRopeTypeIsUnderstood) {
  const json config =
      read_config(R"({"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 2.0}})");
  EXPECT_EQ(config["rope_scaling"]["rope_type"], "linear");
}

TEST(ReadModelConfig, WhereBothAreThereTheNewDtypeCounts) {
  EXPECT_EQ(
      read_config(R"({"model_type": "t5", "dtype": "float32", "torch_dtype": "float16"})")["torch_dtype"],
      "float32");
  EXPECT_EQ(read_config(R"({"model_type": "t5", "dtype": null, "torch_dtype": "float16"})")["torch_dtype"],
            "float16");
}

TEST(ReadModelConfig, RotaryEmbeddingsByLayerTypeStayForTheFamilyToRead) {
  const auto config = read_config(R"({"model_type": "gemma3_text",
      "rope_parameters": {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}})");
  EXPECT_EQ(config["rope_parameters"]["full_attention"]["rope_theta"], 1e6);
  EXPECT_FALSE(config.contains("rope_theta"));
}

TEST(ReadModelConfig, RefusesWhatItWouldGetWrong) {
  EXPECT_TRUE(
      contains(config_error(R"({"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 2},
      "rope_parameters": {"rope_theta": 1e6}})"),
               "both rope_parameters and rope_scaling"));
  EXPECT_TRUE(contains(config_error(R"({"model_type": "llama", "rope_parameters": 7})"), "rope_parameters"));
  EXPECT_TRUE(contains(config_error(R"({"model_type": "llama", "rope_scaling": "linear"})"), "rope_scaling"));
}

TEST(ReadModelConfig, SaysWhereADamagedFileIsDamaged) {
  EXPECT_TRUE(
      contains(config_error("{\n  \"model_type\": \"t5\",\n  \"d_model\": x\n}"), "config.json:3:14"));
  EXPECT_TRUE(contains(config_error(""), "is empty"));
  EXPECT_TRUE(contains(config_error("[]"), "not a JSON object"));
  EXPECT_TRUE(contains(config_error("{}"), "model_type"));
  EXPECT_TRUE(contains(config_error(R"({"model_type": 5})"), "model_type"));
}

TEST(ReadModelConfig, SaysWhatADirectoryLacks) {
  TemporaryDirectory directory;
  const auto read_error = [&](const fs::path& path) {
    return error_message<FormatError>([&] { read_model_config(path); });
  };
  EXPECT_TRUE(contains(read_error(directory / "missing"), "there is no such directory"));
  EXPECT_TRUE(contains(read_error(directory.path()), "config.json: is missing"));
  EXPECT_TRUE(contains(read_error(kGoldens / "t5_adapter"), "adapter"));
}

TEST(ConfigValue, IsGivenWithItsTypeOrRefusedByName) {
  const json config =
      json::parse(R"({"n": 3, "f": 1e-06, "b": true, "s": "x", "null": null, "large": 1e30})");
  EXPECT_EQ(config_int(config, "n"), 3);
  EXPECT_EQ(config_int(config, "null", 7), 7);
  EXPECT_EQ(config_int(config, "absent", 7), 7);
  EXPECT_EQ(config_double(config, "f", 0), 1e-6);
  EXPECT_EQ(config_double(config, "n", 0), 3.0);
  EXPECT_EQ(config_double(config, "absent", 0.5), 0.5);
  EXPECT_TRUE(config_bool(config, "b", false));
  EXPECT_FALSE(config_bool(config, "null", false));
  EXPECT_EQ(config_string(config, "s", ""), "x");
  EXPECT_EQ(config_string(config, "absent", "y"), "y");
  for (const char* key : {"f", "b", "s", "absent", "null", "large"}) {
    EXPECT_TRUE(contains(error_message<FormatError>([&] { config_int(config, key); }), key));
  }
  EXPECT_TRUE(
      contains(error_message<FormatError>([&] { config_double(config, "s", 0); }), "s: must be a number"));
  EXPECT_TRUE(
      contains(error_message<FormatError>([&] { config_bool(config, "n", true); }), "n: must be true"));
  EXPECT_TRUE(
      contains(error_message<FormatError>([&] { config_string(config, "b", ""); }), "b: must be a string"));
}

TEST(WriteModelConfig, KeepsTheFileAndSetsTheTypeInItsSpelling) {
  TemporaryDirectory from, to;
  write_atomically(from / "config.json",
                   R"({"model_type": "t5", "b": 1e-06, "a": [1], "torch_dtype": "float16"})");
  write_model_config(from.path(), to.path(), Dtype::bf16);
  EXPECT_EQ(nlohmann::ordered_json::parse(read_file(to / "config.json")),
            nlohmann::ordered_json::parse(
                R"({"model_type": "t5", "b": 1e-06, "a": [1], "torch_dtype": "bfloat16"})"));

  write_model_config(kGoldens / "llama_sharded", to.path(), Dtype::f32);
  json expected = json::parse(read_file(kGoldens / "llama_sharded/config.json"));
  expected["dtype"] = "float32";
  EXPECT_EQ(json::parse(read_file(to / "config.json")), expected);
}

TEST(WriteModelConfig, TakesLinearTimeInTheNumberOfKeys) {
  constexpr int kKeys = 200'000;
  std::string text = R"({"model_type": "t5")";
  for (int i = 0; i < kKeys; i++) text += concat(", \"k", i, "\": ", i);
  TemporaryDirectory from, to;
  write_atomically(from / "config.json", text + "}");
  write_model_config(from.path(), to.path(), Dtype::bf16);
  const json written = json::parse(read_file(to / "config.json"));
  EXPECT_EQ(written.size(), static_cast<size_t>(kKeys + 2));
  EXPECT_EQ(written["k199999"], 199'999);
}

TEST(ConfigSize, WhatNoModelHasIsRefused) {
  const auto size_error = [](const char* key, int64_t value) {
    return error_message<FormatError>([&] { config_size(json{{key, value}}, key); });
  };
  for (const char* key : {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "d_ff",
                          "num_layers", "head_dim", "num_heads"}) {
    EXPECT_TRUE(
        contains(size_error(key, int64_t{1} << 31), concat(key, ": must be at least 1 and at most ")));
    EXPECT_TRUE(contains(size_error(key, 0), key));
  }
  EXPECT_EQ(config_size(json{{"vocab_size", 262'144}}, "vocab_size"), 262'144);
  EXPECT_NO_THROW(check_total_size(2e12));
  EXPECT_THROW(check_total_size(2e13), FormatError);
}

TEST(CheckTokenIds, NamesWhatIsOutsideTheVocabulary) {
  EXPECT_NO_THROW(check_token_ids(json{{"pad_token_id", -1}, {"eos_token_id", {1, 2}}}, 3));
  EXPECT_NO_THROW(check_token_ids(json{{"eos_token_id", nullptr}}, 3));
  for (const char* key : {"pad_token_id", "decoder_start_token_id", "eos_token_id"}) {
    const std::string message = error_message<FormatError>([&] { check_token_ids(json{{key, 3}}, 3); });
    EXPECT_TRUE(contains(message, concat(key, ": 3 is outside the vocabulary (vocab_size 3)"))) << message;
  }
  EXPECT_THROW(check_token_ids(json{{"eos_token_id", {1, 5}}}, 3), FormatError);
}

}  // namespace
}  // namespace trainer
