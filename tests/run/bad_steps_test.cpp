#include "trainer/run/bad_steps.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "trainer/base/files.h"

#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

using test::contains;
using test::TemporaryDirectory;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
const std::vector<std::string> kOrigins{"a.jsonl:1", "a.jsonl:7", "b.jsonl:2"};

StepResult bad(std::vector<double> sample_losses, double loss = kNaN) {
  StepResult result;
  result.loss = loss;
  result.grad_norm = kNaN;
  result.learning_rate = 0.5;
  result.skipped = true;
  result.sample_losses = std::move(sample_losses);
  return result;
}

std::vector<nlohmann::json> rows_of(const std::filesystem::path& file) {
  std::vector<nlohmann::json> rows;
  std::istringstream in(read_file(file));
  for (std::string line; std::getline(in, line);) rows.push_back(nlohmann::json::parse(line));
  return rows;
}

std::string said(BadSteps& steps, const StepResult& result) {
  ::testing::internal::CaptureStderr();
  steps.add(4, result, kOrigins);
  return ::testing::internal::GetCapturedStderr();
}

TEST(BadSteps, NamesTheSamplesThatAreToBlameAndWritesAllOfThemDown) {
  TemporaryDirectory directory;
  BadSteps steps(directory / "bad_steps.jsonl", 3);
  const std::string text = said(steps, bad({1.5, kNaN, 2.5}));
  EXPECT_TRUE(contains(text, "step 4 is not applied: loss nan, gradient norm nan")) << text;
  EXPECT_TRUE(contains(text, "1 of 3 samples: a.jsonl:7")) << text;
  EXPECT_FALSE(contains(text, "a.jsonl:1;")) << text;
  const auto rows = rows_of(directory / "bad_steps.jsonl");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].dump(),
            nlohmann::json::parse(R"({"kind": "bad_step", "step": 4, "loss": null, "grad_norm": null,
              "learning_rate": 0.5, "cause": "samples", "samples": [{"origin": "a.jsonl:1", "loss": 1.5},
              {"origin": "a.jsonl:7", "loss": null}, {"origin": "b.jsonl:2", "loss": 2.5}]})")
                .dump());
}

TEST(BadSteps, SaysWhenItIsNotTheSamples) {
  TemporaryDirectory directory;
  BadSteps steps(directory / "bad_steps.jsonl", 9);
  EXPECT_TRUE(contains(said(steps, bad({1, 2, 3}, 2.0)), "it is the gradient"));
  EXPECT_TRUE(contains(said(steps, bad({kNaN, kNaN, kNaN})), "it is the weights"));
  EXPECT_TRUE(contains(said(steps, bad({1, 2, 3})), "alone, each sample"));
  const auto rows = rows_of(directory / "bad_steps.jsonl");
  EXPECT_EQ(rows[0]["cause"], "gradient");
  EXPECT_EQ(rows[1]["cause"], "samples");
  EXPECT_EQ(rows[2]["cause"], "together");
}

TEST(BadSteps, EndTheRunAfterSoManyInARow) {
  TemporaryDirectory directory;
  BadSteps steps(directory / "bad_steps.jsonl", 2);
  const StepResult good;
  said(steps, bad({kNaN}));
  EXPECT_EQ(steps.reason_to_end(), "");
  said(steps, good);
  EXPECT_EQ(steps.in_a_row(), 0);
  said(steps, bad({kNaN}));
  EXPECT_EQ(steps.reason_to_end(), "");
  said(steps, bad({kNaN}));
  EXPECT_TRUE(contains(steps.reason_to_end(), "2 steps in a row"));
  EXPECT_TRUE(contains(steps.reason_to_end(), "training.max_bad_steps: 2"));

  BadSteps first(directory / "bad_steps.jsonl", 0);
  said(first, bad({kNaN}));
  EXPECT_TRUE(contains(first.reason_to_end(), "(training.max_bad_steps: 0, the first one ends the run)"));
  BadSteps resumed(directory / "bad_steps.jsonl", 2, 8, 1);
  said(resumed, bad({kNaN}));
  EXPECT_NE(resumed.reason_to_end(), "");
}

TEST(BadSteps, ARunThatGoesOnKeepsTheRowsOfStepsThatItDoesNotMakeAgain) {
  TemporaryDirectory directory;
  const auto file = directory / "bad_steps.jsonl";
  write_atomically(file, R"({"kind":"bad_step","step":3})"
                         "\n"
                         R"({"kind":"bad_step","step":5})"
                         "\n"
                         R"({"kind":"bad_step","st)");
  const BadSteps resumed(file, 3, 4, 0);
  EXPECT_EQ(rows_of(file).size(), 1u);
  EXPECT_EQ(rows_of(file)[0]["step"], 3);
  const BadSteps anew(file, 3);
  EXPECT_FALSE(std::filesystem::exists(file));
}

}  // namespace
}  // namespace trainer
