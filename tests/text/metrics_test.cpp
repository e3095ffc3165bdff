// Scores equal those of rouge_score, sacrebleu and SQuAD's script (tests/goldens/text/metrics.json, made by
// tests/make_goldens/metrics).
#include "trainer/text/metrics.h"

#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/config/config.h"

#include "support/error_message.h"

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;
using Values = std::map<std::string, double>;

const std::vector<std::string> kAll{"exact_match", "f1", "rouge", "bleu", "chrf", "json"};

Values scores(const std::vector<std::pair<std::string, std::string>>& pairs,
              const std::vector<std::string>& names = kAll) {
  TextMetrics metrics(names);
  for (const auto& [prediction, target] : pairs) metrics.add(prediction, target);
  const auto values = metrics.values();
  return {values.begin(), values.end()};
}

TEST(Metrics, NumbersAreThoseOfThePythonPackages) {
  const Json corpora =
      Json::parse(read_file(std::filesystem::path(SOURCE_DIR) / "tests/goldens/text/metrics.json"));
  ASSERT_GT(corpora.size(), 60);
  for (const Json& corpus : corpora) {
    std::vector<std::pair<std::string, std::string>> pairs;
    for (size_t i = 0; i < corpus["targets"].size(); i++)
      pairs.emplace_back(corpus["predictions"][i], corpus["targets"][i]);
    const Values values = scores(pairs);
    EXPECT_EQ(values.size(), corpus["values"].size()) << corpus["name"];
    for (const auto& [name, expected] : corpus["values"].items()) {
      ASSERT_TRUE(values.contains(name)) << corpus["name"] << ": " << name;
      const double scale = name == "bleu" || name == "chrf" ? 100 : 1;
      EXPECT_NEAR(values.at(name), expected.get<double>(), 1e-9 * scale) << corpus["name"] << ": " << name;
    }
  }
}

TEST(Metrics, JsonIsScoredOnlyWhereAllTargetsAreObjectsOrArrays) {
  const Values with = scores({{R"({"a": [1]})", R"({"a":[1.0]})"}, {"sure: {}", "{}"}}, {"json"});
  EXPECT_EQ(with, (Values{{"json_valid", 0.5}, {"json_match", 0.5}}));
  EXPECT_EQ(scores({{"{}", "{}"}, {"{}", "none"}}, {"json"}), Values{});
}

TEST(Metrics, DeeplyNestedAnswersTakeNoStack) {
  const std::string deep(1'000'000, '[');
  EXPECT_EQ(scores({{deep, "[]"}}, {"json"}), (Values{{"json_valid", 0}, {"json_match", 0}}));
}

TEST(Metrics, OnlyTheRequestedMetricsAreReturnedInThatOrder) {
  TextMetrics metrics({"chrf", "exact_match"});
  EXPECT_TRUE(metrics.values().empty());
  metrics.add("a", "a");
  EXPECT_EQ(metrics.values(),
            (std::vector<std::pair<std::string, double>>{{"chrf", 100}, {"exact_match", 1}}));
}

TEST(Metrics, TheConfigurationKnowsAllMetrics) {
  EXPECT_EQ(scores({{"{}", "{}"}}, EvaluationConfig().metrics).size(), 9u);
}

TEST(Metrics, AnUnknownNameIsRefused) {
  EXPECT_TRUE(test::contains(test::error_message<ConfigError>([] { TextMetrics({"meteor"}); }), "'meteor'"));
}

}  // namespace
}  // namespace trainer
