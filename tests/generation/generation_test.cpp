// Generation compared with Transformers (tests/make_goldens/generation); answers do not depend on the batch.
#include <algorithm>
#include <cmath>

#include <ATen/CPUGeneratorImpl.h>

#include "trainer/base/error.h"
#include "trainer/generation/generate.h"

#include "generation/sampling.h"
#include "models/golden.h"
#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

nlohmann::json golden_cases(const std::string& name) {
  std::ifstream in(std::filesystem::path(SOURCE_DIR) / "tests/goldens/generation" / name);
  return nlohmann::json::parse(in);
}

constexpr int64_t kVocabulary = 1000;  // larger than those of the models

// The options of a case, as a model's generation_config.json would hold them.
GenerationConfig config_of(const nlohmann::json& options, nlohmann::json base = {{"eos_token_id", 2}}) {
  const test::TemporaryDirectory directory;
  base.update(options);
  std::ofstream(directory.path() / "generation_config.json") << base;
  GenerationConfig config = read_generation_config(directory.path(), kVocabulary);
  config.do_sample = options.value("do_sample", false);
  return config;
}

using Answers = std::vector<std::vector<Tokens>>;

// One test a model: all its cases.
class GenerationTest : public ::testing::TestWithParam<std::string> {
 protected:
  template <class Check>
  void for_each_case(Check check) {
    const Golden golden(GetParam());
    std::ifstream in(golden.directory / "model" / "generation_config.json");
    const nlohmann::json own = nlohmann::json::parse(in);
    int cases = 0;
    nlohmann::json all = golden_cases("sequences.json");
    for (const nlohmann::json& golden_case : golden_cases("diverse.json")) all.push_back(golden_case);
    for (const nlohmann::json& golden_case : all) {
      if (golden_case["model"] != GetParam()) continue;
      SCOPED_TRACE(golden_case["options"].dump());
      cases++;
      check(*golden.model, config_of(golden_case["options"], own),
            golden_case["prompts"].get<std::vector<Tokens>>(), golden_case["generated"].get<Answers>());
    }
    EXPECT_GT(cases, 10);
  }
};

TEST_P(GenerationTest, EveryPromptAloneIsAnsweredAsTransformersDoes) {
  for_each_case([](const Model& model, const GenerationConfig& config, const std::vector<Tokens>& prompts,
                   const Answers& expected) {
    for (size_t i = 0; i < prompts.size(); i++)
      EXPECT_EQ(generate(model, {prompts[i]}, config, at::kCPU)[0], expected[i]);
  });
}

TEST_P(GenerationTest, ABatchOfDifferentLengthsGivesTheSame) {
  for_each_case([](const Model& model, GenerationConfig config, const std::vector<Tokens>& prompts,
                   const Answers& expected) {
    for (const bool packing : {true, false}) {
      config.packing = packing;
      EXPECT_EQ(generate(model, prompts, config, at::kCPU), expected) << "packing " << packing;
    }
  });
}

// Prompts take the places of those that have ended.
TEST_P(GenerationTest, TwoAtATimeGiveTheSame) {
  for_each_case([](const Model& model, const GenerationConfig& config, const std::vector<Tokens>& prompts,
                   const Answers& expected) {
    OomHandler batch_size(2);
    generate_in_batches(
        model, prompts, config, at::kCPU, batch_size, {},
        [&](size_t input, const std::vector<Tokens>& answers) { EXPECT_EQ(answers, expected[input]); });
  });
}

TEST_P(GenerationTest, WhatIsSampledDependsOnTheSeedAndThePromptsNumberOnly) {
  const Golden golden(GetParam());
  GenerationConfig config;
  config.do_sample = true;
  config.max_new_tokens = 12;
  config.num_return_sequences = 3;
  const std::vector<Tokens> prompts{{5, 6, 7}, {8}, {9, 10, 11, 12, 13, 14}, {8}};
  const Answers together = generate(*golden.model, prompts, config, at::kCPU);
  for (size_t i = 0; i < prompts.size(); i++) {
    GenerationHooks hooks;
    hooks.numbers = {i};
    EXPECT_EQ(generate(*golden.model, {prompts[i]}, config, at::kCPU, hooks)[0], together[i]);
  }
  EXPECT_NE(together[1], together[3]);        // the same prompt with another number
  EXPECT_NE(together[0][0], together[0][1]);  // another answer to the same prompt
  config.seed++;
  EXPECT_NE(generate(*golden.model, prompts, config, at::kCPU), together);
}

INSTANTIATE_TEST_SUITE_P(Families, GenerationTest,
                         ::testing::Values("t5_v1_0", "t5_v1_1_lora", "qwen2", "qwen3_lora", "llama"),
                         [](const auto& param) { return param.param; });

TEST(Generation, StopsAndStreamsThroughItsHooks) {
  const Golden golden("qwen2");
  GenerationConfig config;
  config.max_new_tokens = 10;
  const Tokens whole = generate(*golden.model, {{5, 6, 7}}, config, at::kCPU)[0][0];
  ASSERT_EQ(whole.size(), 10u);
  Tokens streamed;
  GenerationHooks hooks;
  hooks.stop = [](const Tokens& generated) { return generated.size() == 4; };
  hooks.on_token = [&](size_t input, int32_t token) {
    EXPECT_EQ(input, 0u);
    streamed.push_back(token);
  };
  const Tokens stopped = generate(*golden.model, {{5, 6, 7}}, config, at::kCPU, hooks)[0][0];
  EXPECT_EQ(stopped, Tokens(whole.begin(), whole.begin() + 4));
  EXPECT_EQ(streamed, stopped);
}

// transformers: max_length counts the prompt, and max_new_tokens takes its place.
TEST(Generation, MaxLengthIsThatOfPromptAndAnswer) {
  const Golden golden("qwen2");
  GenerationConfig config = config_of({{"max_length", 9}, {"eos_token_id", nullptr}});
  const std::vector<Tokens> prompts{{5, 6, 7}, {8}};
  for (const int64_t beams : {int64_t{1}, int64_t{2}}) {
    config.num_beams = beams;
    const Answers answers = generate(*golden.model, prompts, config, at::kCPU);
    EXPECT_EQ(answers[0][0].size(), 6u);
    EXPECT_EQ(answers[1][0].size(), 8u);
  }
  config.max_length = 3;
  EXPECT_THROW(generate(*golden.model, prompts, config, at::kCPU), DataError);
  EXPECT_EQ(config_of({{"max_length", 9}, {"max_new_tokens", 4}}).max_length, 0);
}

TEST(Generation, MoreAnswersThanThereAreIsRefused) {
  const Golden golden("qwen2");
  GenerationConfig config;
  config.num_return_sequences = 2;
  EXPECT_THROW(generate(*golden.model, {{5}}, config, at::kCPU), ConfigError);
  config.num_beams = 2;
  EXPECT_NO_THROW(generate(*golden.model, {{5}}, config, at::kCPU));
  config.num_return_sequences = 3;
  EXPECT_THROW(generate(*golden.model, {{5}}, config, at::kCPU), ConfigError);
}

TEST(Generation, BeamsThatCannotBeGroupedAreRefused) {
  const Golden golden("qwen2");
  GenerationConfig config;
  const auto refuses = [&] {
    return test::error_message<ConfigError>([&] { generate(*golden.model, {{5}}, config, at::kCPU); });
  };
  config.num_beams = 4;
  config.num_beam_groups = 3;
  config.diversity_penalty = 1.0;
  EXPECT_NE(refuses().find("cannot be divided into 3 groups"), std::string::npos);
  config.num_beam_groups = 2;
  config.diversity_penalty = 0.0;
  EXPECT_NE(refuses().find("need each other"), std::string::npos);
  config.diversity_penalty = 1.0;
  config.do_sample = true;
  EXPECT_NE(refuses().find("leave out num_beam_groups"), std::string::npos);
}

TEST(LogitsProcessors, ChangeScoresAsTransformersDo) {
  for (const nlohmann::json& golden : golden_cases("processors.json")) {
    SCOPED_TRACE(golden["options"].dump());
    const auto sequences = golden["sequences"].get<std::vector<Tokens>>();
    std::vector<const Tokens*> rows;
    for (const Tokens& sequence : sequences) rows.push_back(&sequence);
    const auto values = golden["scores"].get<std::vector<std::vector<float>>>();
    at::Tensor scores =
        at::empty({static_cast<int64_t>(values.size()), static_cast<int64_t>(values[0].size())});
    for (size_t i = 0; i < values.size(); i++)
      std::ranges::copy(values[i], scores.mutable_data_ptr<float>() + i * values[i].size());
    const GenerationConfig config = config_of(golden["options"]);
    const at::Tensor processed =
        LogitsProcessors(config).process(scores, rows, golden["generated"].get<int64_t>()).contiguous();
    const float* actual = processed.const_data_ptr<float>();
    for (const auto& row : golden["processed"]) {
      for (const auto& expected : row) {
        if (expected.is_null()) {
          EXPECT_EQ(*actual, -INFINITY);
        } else {
          EXPECT_NEAR(*actual, expected.get<float>(), 1e-5);
        }
        actual++;
      }
    }
  }
}

// What is forced or suppressed at the beginning depends on a row's own prompt, as if it were alone.
TEST(LogitsProcessors, TreatEachRowAsIfItWereAlone) {
  const at::Tensor scores = at::randn({3, 20}, at::make_generator<at::CPUGeneratorImpl>(3));
  for (const nlohmann::json& options :
       {nlohmann::json{{"forced_bos_token_id", 7}}, nlohmann::json{{"begin_suppress_tokens", {1, 4}}},
        nlohmann::json{{"forced_bos_token_id", 7}, {"begin_suppress_tokens", {1, 7}}},
        nlohmann::json{{"forced_eos_token_id", 5}, {"max_new_tokens", 2}},
        nlohmann::json{{"min_length", 4}, {"suppress_tokens", {3}}}}) {
    const GenerationConfig config = config_of(options);
    const LogitsProcessors processors(config);
    for (const int64_t generated : {int64_t{0}, int64_t{1}}) {
      std::vector<Tokens> rows{{2}, {2, 3, 4}, {2, 9}};
      for (Tokens& row : rows) row.insert(row.end(), static_cast<size_t>(generated), 6);
      const at::Tensor together =
          processors.process(scores.clone(), {&rows[0], &rows[1], &rows[2]}, generated);
      for (int64_t i = 0; i < 3; i++) {
        const at::Tensor alone =
            processors.process(scores.narrow(0, i, 1).clone(), {&rows[static_cast<size_t>(i)]}, generated);
        EXPECT_TRUE(together.narrow(0, i, 1).equal(alone)) << options << " row " << i << " of " << generated;
      }
    }
  }
}

constexpr int kDraws = 20000;

// Scores whose probabilities are 0.5, 0.3, 0.15, 0.05 and 0.
at::Tensor known_scores(int64_t rows) {
  return at::tensor({0.5, 0.3, 0.15, 0.05, 0.0}, at::kFloat).log().expand({rows, 5}).contiguous() + 3;
}
std::vector<uint64_t> many_keys() {
  std::vector<uint64_t> keys;
  for (uint64_t i = 0; i < kDraws; i++) keys.push_back(i);
  return keys;
}
// Five standard deviations of a share p of all draws.
double spread(double p) { return 5 * std::sqrt(p * (1 - p) / kDraws); }

TEST(Sampling, DrawsTokensAsOftenAsTheirProbabilitySays) {
  const at::Tensor tokens = sample(known_scores(kDraws), many_keys());
  const std::vector<double> expected{0.5, 0.3, 0.15, 0.05, 0.0};
  for (size_t token = 0; token < expected.size(); token++) {
    const double share = tokens.eq(static_cast<int64_t>(token)).sum().item<double>() / kDraws;
    EXPECT_NEAR(share, expected[token], spread(expected[token])) << token;
  }
}

TEST(Sampling, DrawsPairsWithoutPuttingBack) {
  const at::Tensor pairs = sample_without_replacement(known_scores(kDraws), 2, many_keys());
  const at::Tensor first = pairs.select(1, 0), second = pairs.select(1, 1);
  EXPECT_FALSE(first.eq(second).any().item<bool>());
  EXPECT_NEAR(first.eq(0).sum().item<double>() / kDraws, 0.5, spread(0.5));
  const double p = 0.5 * 0.3 / 0.5;  // 0 first, then 1 among the rest
  const double share = first.eq(0).logical_and(second.eq(1)).sum().item<double>() / kDraws;
  EXPECT_NEAR(share, p, spread(p));
}

TEST(GenerationConfigFile, IsReadWithItsTypesAndRanges) {
  const GenerationConfig config = config_of({{"top_k", 20},
                                             {"temperature", 0.7},
                                             {"do_sample", true},
                                             {"early_stopping", "never"},
                                             {"eos_token_id", {5, 6}}});
  EXPECT_EQ(config.top_k, 20);
  EXPECT_EQ(config.temperature, 0.7);
  EXPECT_EQ(config.early_stopping, EarlyStopping::never);
  EXPECT_EQ(config.eos_token_ids, (Tokens{5, 6}));
  EXPECT_EQ(config_of(nlohmann::json::object()).top_k, 50);  // Transformers' default
  for (const nlohmann::json& wrong : {nlohmann::json{{"top_p", 1.5}},
                                      {{"temperature", 0}},
                                      {{"num_beams", "four"}},
                                      {{"num_beams", 1'000'000'000}},
                                      {{"num_return_sequences", 18446744073709551615ULL}},
                                      {{"max_new_tokens", int64_t{1} << 62}},
                                      {{"min_length", -1}},
                                      {{"eos_token_id", kVocabulary}},
                                      {{"eos_token_id", {5, int64_t{1} << 40}}},
                                      {{"eos_token_id", "</s>"}},
                                      {{"eos_token_id", 1.5}},
                                      {{"pad_token_id", 18446744073709551615ULL}},
                                      {{"decoder_start_token_id", kVocabulary}},
                                      {{"decoder_start_token_id", {1, 2}}},
                                      {{"forced_bos_token_id", -2}},
                                      {{"forced_eos_token_id", kVocabulary}},
                                      {{"suppress_tokens", {kVocabulary}}},
                                      {{"begin_suppress_tokens", {{{"id", 1}}}}},
                                      {{"stop_strings", {"a", ""}}},
                                      {{"stop_strings", 7}},
                                      {{"max_time", 0.5}},
                                      {{"cache_implementation", "quantized"}},
                                      {{"penalty_alpha", 0.6}}}) {
    const std::string message = test::error_message<FormatError>([&] { config_of(wrong); });
    EXPECT_NE(message.find(wrong.begin().key()), std::string::npos) << message;
    EXPECT_NE(message.find("generation_config.json"), std::string::npos) << message;
  }
}

TEST(GenerationConfigFile, StopStringsAreATextOrAList) {
  EXPECT_EQ(config_of({{"stop_strings", "###"}}).stop_strings, std::vector<std::string>{"###"});
  EXPECT_EQ(config_of({{"stop_strings", {"a", "b"}}}).stop_strings, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(config_of({{"stop_strings", nullptr}}).stop_strings.empty());
}

TEST(GenerationConfigFile, AnUnknownKeyIsAWarning) {
  testing::internal::CaptureStderr();
  config_of(
      {{"use_cache", true}, {"transformers_version", "5.23.0"}, {"max_length", 20}, {"top_h", nullptr}});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  config_of({{"answer_backwards", true}});
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("unknown keys are ignored: answer_backwards"), std::string::npos) << said;
}

TEST(GenerationConfigFile, ThatOfAnAdapterComesFirst) {
  const test::TemporaryDirectory model, adapter;
  std::ofstream(model / "generation_config.json") << R"({"eos_token_id": 7, "num_beams": 3})";
  EXPECT_EQ(read_generation_config(model.path(), kVocabulary, adapter.path()).num_beams, 3);
  std::ofstream(adapter / "generation_config.json") << R"({"eos_token_id": [7, 9]})";
  EXPECT_EQ(read_generation_config(model.path(), kVocabulary, adapter.path()).eos_token_ids, (Tokens{7, 9}));
}

TEST(GenerationConfigFile, ThatOfTheCurrentDirectoryIsNotRead) {
  const test::TemporaryDirectory model, elsewhere;
  std::ofstream(model / "generation_config.json") << R"({"eos_token_id": 7, "num_beams": 3})";
  std::ofstream(elsewhere / "generation_config.json") << R"({"eos_token_id": 9})";
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(elsewhere.path());
  const GenerationConfig config = read_generation_config(model.path(), kVocabulary);
  std::filesystem::current_path(before);
  EXPECT_EQ(config.num_beams, 3);
  EXPECT_EQ(config.eos_token_ids, Tokens{7});
}

TEST(GenerationConfigFile, MayHaveNoTokenOfAKind) {
  EXPECT_TRUE(config_of({{"eos_token_id", -1}}).eos_token_ids.empty());
  EXPECT_FALSE(config_of({{"decoder_start_token_id", -1}}).decoder_start_token_id.has_value());
  EXPECT_EQ(config_of({{"eos_token_id", {kVocabulary - 1, -1}}}).eos_token_ids, Tokens{kVocabulary - 1});
}

TEST(GenerationConfigFile, SamplesOnlyWhereItIsAskedFor) {
  const test::TemporaryDirectory directory;
  std::ofstream(directory.path() / "generation_config.json") << R"({"do_sample": true})";
  EXPECT_FALSE(read_generation_config(directory.path(), kVocabulary).do_sample);
}

TEST(GenerationConfigFile, MayBeMissing) {
  const test::TemporaryDirectory directory;
  std::ofstream(directory.path() / "config.json") << R"({"eos_token_id": 7, "num_beams": 3})";
  const GenerationConfig config = read_generation_config(directory.path(), kVocabulary);
  EXPECT_EQ(config.eos_token_ids, Tokens{7});
  EXPECT_EQ(config.num_beams, 3);
}

}  // namespace
}  // namespace trainer
