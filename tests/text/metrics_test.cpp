// Scores equal those of rouge_score, sacrebleu and SQuAD's script (tests/goldens/text/metrics.json, made by
// tests/make_goldens/metrics).
#include "trainer/text/metrics.h"

#include <cmath>
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

const std::vector<std::string> kAll{"exact_match", "f1", "rouge", "bleu", "chrf", "ter", "json"};

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
      const double scale = name == "bleu" || name == "chrf" || name == "ter" ? 100 : 1;
      EXPECT_NEAR(values.at(name), expected.get<double>(), 1e-9 * scale) << corpus["name"] << ": " << name;
    }
  }
}

TEST(Metrics, JsonIsScoredOnlyWhereAllTargetsAreObjectsOrArrays) {
  const Values with = scores({{R"({"a": [1]})", R"({"a":[1.0]})"}, {"sure: {}", "{}"}}, {"json"});
  EXPECT_EQ(with, (Values{{"json_valid", 0.5}, {"json_match", 0.5}, {"json_fields", 1}}));
  EXPECT_EQ(scores({{"{}", "{}"}, {"{}", "none"}}, {"json"}), Values{});
}

TEST(Metrics, DeeplyNestedAnswersTakeNoStack) {
  const std::string deep(1'000'000, '[');
  EXPECT_EQ(scores({{deep, "[]"}}, {"json"}), (Values{{"json_valid", 0}, {"json_match", 0}}));
}

TEST(Metrics, EachFieldOfJsonIsCounted) {
  TextMetrics metrics({"json"});
  metrics.add(R"({"do": "bake", "at": {"minutes": 4}, "of": [{"what": "egg"}]})",
              R"({"do": "bake", "at": {"minutes": 5}, "of": [{"what": "egg"}, {"what": "salt"}]})");
  metrics.add("what?", R"({"do": "fry"})");
  std::map<std::string, std::pair<int64_t, int64_t>> found;
  for (const FieldScore& field : metrics.fields()) found[field.name] = {field.right, field.count};
  EXPECT_EQ(found, (decltype(found){{"at.minutes", {0, 1}}, {"do", {1, 2}}, {"of[].what", {1, 2}}}));
  EXPECT_DOUBLE_EQ(metrics.values().back().second, 0.4);
}

// Of 400 answers of which 60 % are right, the standard error of the share is sqrt(0.6 * 0.4 / 400) = 0.0245.
TextMetrics answers_of_which(double share_right) {
  TextMetrics metrics({"exact_match", "bleu"});
  for (int i = 0; i < 400; i++)
    metrics.add(i % 100 < 100 * share_right ? "the cat sat on it" : "a dog lay in the", "the cat sat on it");
  return metrics;
}

TEST(Metrics, ARangeHoldsNineteenOfTwentyScores) {
  const std::vector<ScoreRange> ranges = answers_of_which(0.6).ranges();
  ASSERT_EQ(ranges.size(), 2u);
  EXPECT_EQ(ranges[0].name, "exact_match");
  EXPECT_NEAR(ranges[0].low, 0.6 - 1.96 * 0.0245, 0.007);
  EXPECT_NEAR(ranges[0].high, 0.6 + 1.96 * 0.0245, 0.007);
  EXPECT_EQ(answers_of_which(1).ranges()[0].low, 1);
}

TEST(Metrics, AComparisonSaysHowSureADifferenceIs) {
  const TextMetrics a = answers_of_which(0.6), b = answers_of_which(0.5);
  const std::vector<ScoreDifference> found = compare(a, b);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_DOUBLE_EQ(found[0].a - found[0].b, 0.1);  // a tenth of the answers is right in `a` alone
  const double error = std::sqrt(0.1 * 0.9 / 400);
  EXPECT_NEAR(found[0].low, 0.1 - 1.96 * error, 0.005);
  EXPECT_NEAR(found[0].high, 0.1 + 1.96 * error, 0.005);
  EXPECT_LT(found[0].p, 0.002);
  EXPECT_EQ(compare(a, a)[0].p, 1);  // no reason to think that they differ
}

TEST(Metrics, OnlyTheRequestedMetricsAreReturnedInThatOrder) {
  TextMetrics metrics({"chrf", "exact_match"});
  EXPECT_TRUE(metrics.values().empty());
  metrics.add("a", "a");
  EXPECT_EQ(metrics.values(),
            (std::vector<std::pair<std::string, double>>{{"chrf", 100}, {"exact_match", 1}}));
}

TEST(Metrics, TheConfigurationKnowsAllMetrics) {
  EXPECT_EQ(scores({{"{}", "{}"}}, EvaluationConfig().metrics).size(), 9u);  // json has no fields here
}

TEST(Metrics, AnUnknownNameIsRefused) {
  EXPECT_TRUE(test::contains(test::error_message<ConfigError>([] { TextMetrics({"meteor"}); }), "'meteor'"));
}

}  // namespace
}  // namespace trainer
