#include "run/numerics_monitor.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "trainer/base/files.h"

#include "base/random.h"
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

RunPosition stopped_after(int64_t step, int64_t bad_steps_in_a_row = 0) {
  RunPosition position;
  position.step = step;
  position.bad_steps_in_a_row = bad_steps_in_a_row;
  return position;
}

std::vector<nlohmann::json> rows_of(const std::filesystem::path& file) {
  std::vector<nlohmann::json> rows;
  std::istringstream in(read_file(file));
  for (std::string line; std::getline(in, line);) rows.push_back(nlohmann::json::parse(line));
  return rows;
}

std::string said(NumericsMonitor& monitor, const StepResult& result) {
  ::testing::internal::CaptureStderr();
  MetricRow row;
  monitor.add(4, result, row, [] { return kOrigins; });
  return ::testing::internal::GetCapturedStderr();
}

TEST(NumericsMonitor, NamesTheSamplesThatAreToBlameAndWritesAllOfThemDown) {
  TemporaryDirectory directory;
  NumericsMonitor steps(directory / "bad_steps.jsonl", 3);
  const std::string text = said(steps, bad({1.5, kNaN, 2.5}));
  EXPECT_TRUE(contains(text, "step 4 skipped: loss nan, gradient norm nan")) << text;
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

TEST(NumericsMonitor, SaysWhenItIsNotTheSamples) {
  TemporaryDirectory directory;
  NumericsMonitor steps(directory / "bad_steps.jsonl", 9);
  EXPECT_TRUE(contains(said(steps, bad({1, 2, 3}, 2.0)), "it is the gradient"));
  EXPECT_TRUE(contains(said(steps, bad({kNaN, kNaN, kNaN})), "it is the weights"));
  EXPECT_TRUE(contains(said(steps, bad({1, 2, 3})), "each sample on its own"));
  const auto rows = rows_of(directory / "bad_steps.jsonl");
  EXPECT_EQ(rows[0]["cause"], "gradient");
  EXPECT_EQ(rows[1]["cause"], "samples");
  EXPECT_EQ(rows[2]["cause"], "together");
}

TEST(NumericsMonitor, EndsTheRunAfterSoManyBadStepsInARow) {
  TemporaryDirectory directory;
  NumericsMonitor steps(directory / "bad_steps.jsonl", 2);
  const StepResult good;
  said(steps, bad({kNaN}));
  EXPECT_EQ(steps.reason_to_end(), std::nullopt);
  said(steps, good);
  RunPosition position;
  steps.save(position);
  EXPECT_EQ(position.bad_steps_in_a_row, 0);
  said(steps, bad({kNaN}));
  EXPECT_EQ(steps.reason_to_end(), std::nullopt);
  said(steps, bad({kNaN}));
  EXPECT_TRUE(contains(steps.reason_to_end().value(), "2 steps in a row"));
  EXPECT_TRUE(contains(steps.reason_to_end().value(), "training.max_bad_steps: 2"));

  NumericsMonitor first(directory / "bad_steps.jsonl", 0);
  said(first, bad({kNaN}));
  EXPECT_TRUE(
      contains(first.reason_to_end().value(), "(training.max_bad_steps: 0, the first one ends the run)"));
  NumericsMonitor resumed(directory / "bad_steps.jsonl", 2, stopped_after(8, 1));
  said(resumed, bad({kNaN}));
  EXPECT_TRUE(resumed.reason_to_end());
}

TEST(NumericsMonitor, AResumedRunKeepsTheRowsOfStepsThatItDoesNotMakeAgain) {
  TemporaryDirectory directory;
  const auto file = directory / "bad_steps.jsonl";
  write_atomically(file, R"({"kind":"bad_step","step":3})"
                         "\n"
                         R"({"kind":"bad_step","step":5})"
                         "\n"
                         R"({"kind":"bad_step","st)");
  const NumericsMonitor resumed(file, 3, stopped_after(4));
  EXPECT_EQ(rows_of(file).size(), 1u);
  EXPECT_EQ(rows_of(file)[0]["step"], 3);
  const NumericsMonitor anew(file, 3);
  EXPECT_FALSE(std::filesystem::exists(file));
}

// Uniform in [0, 1), the same ones every time.
double noise(uint64_t step) { return static_cast<double>(derive(1, step) >> 11) * 0x1p-53; }

class LossSpikes : public ::testing::Test {
 protected:
  // Whether it was marked as a spike.
  bool add(double loss) { return add(monitor_, loss); }
  static bool add(NumericsMonitor& monitor, double loss) {
    StepResult result;
    result.loss = loss;
    MetricRow row;
    monitor.add(1, result, row, [] { return kOrigins; });
    return row.values.contains("spike");
  }

  TemporaryDirectory directory_;
  NumericsMonitor monitor_{directory_ / "bad_steps.jsonl", 3};
};

TEST_F(LossSpikes, TheNoiseOfARunWhoseLossFallsHasNone) {
  for (uint64_t step = 0; step < 2000; step++) {
    const double mean = 0.2 + 6 * std::exp(-static_cast<double>(step) / 200);
    EXPECT_FALSE(add(mean * (0.6 + 0.8 * noise(step)))) << step;
  }
}

TEST_F(LossSpikes, ALossFarAboveTheOthersIsOneAndDoesNotHideTheNext) {
  for (uint64_t step = 0; step < 40; step++) add(2 + 0.1 * noise(step));
  EXPECT_FALSE(add(2.3));
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(add(6));
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(contains(text, "a loss of 6 is far above those of the steps before, whose median is 2.0"))
      << text;
  EXPECT_TRUE(add(5));
  EXPECT_FALSE(add(2.1));
}

TEST_F(LossSpikes, ALevelThatStaysIsNoneForLong) {
  for (uint64_t step = 0; step < 100; step++) add(1 + 0.01 * noise(step));
  int64_t marked = 0;
  for (uint64_t step = 0; step < 100; step++) marked += add(3 + 0.01 * noise(step)) ? 1 : 0;
  EXPECT_GE(marked, 10);
  EXPECT_LE(marked, 33);  // until the new level is more than half of the last 64
}

TEST_F(LossSpikes, AtTheStartAndAmongEqualLossesOnlyWhatIsFarAbove) {
  EXPECT_FALSE(add(1));
  EXPECT_FALSE(add(1000));  // two losses say nothing yet
  for (int step = 0; step < 30; step++) EXPECT_FALSE(add(1));
  EXPECT_FALSE(add(1.4));
  EXPECT_TRUE(add(1.6));
}

TEST_F(LossSpikes, ALossNearZeroIsNoneHoweverSmallTheOthersAre) {
  for (uint64_t step = 0; step < 40; step++) add(1e-4 * noise(step));
  EXPECT_FALSE(add(1e-3));
  EXPECT_TRUE(add(0.06));
}

TEST_F(LossSpikes, AResumedRunFindsThoseThatItWouldHaveFound) {
  for (uint64_t step = 0; step < 77; step++) add(noise(step));
  RunPosition position;
  monitor_.save(position);
  NumericsMonitor resumed(directory_ / "bad_steps.jsonl", 3, position);
  int64_t found = 0;
  for (uint64_t step = 77; step < 300; step++) {
    const double loss = noise(step) * (step % 41 == 0 ? 20 : 1);
    const bool is_spike = add(loss);
    EXPECT_EQ(add(resumed, loss), is_spike) << step;
    found += is_spike ? 1 : 0;
  }
  EXPECT_GT(found, 0);
}

}  // namespace
}  // namespace trainer
