#include "trainer/observe/console.h"

#include <cmath>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "trainer/base/log.h"

#include "observe/progress_bar.h"
#include "support/error_message.h"

namespace trainer {
namespace {

using test::contains;

std::string shown_by(const std::function<void()>& call) {
  ::testing::internal::CaptureStderr();
  call();
  return ::testing::internal::GetCapturedStderr();
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) n++;
  return n;
}

MetricRow train_row(int64_t step, double loss) {
  return {"train",
          {{"step", step},
           {"epoch", 0.12},
           {"loss", loss},
           {"grad_norm", 1.234},
           {"learning_rate", 4.9e-5},
           {"tokens", 2468},
           {"samples", 25},
           {"step_seconds", 2.0},
           {"memory_allocated", 1'200'000'000},
           {"memory_peak", 1'400'000'000}}};
}

TEST(Console, ALinePerIntervalHasItsMeanLossAndRates) {
  Console console({.logging_steps = 2});
  console.start({}, 500);
  EXPECT_EQ(shown_by([&] { console.write(train_row(9, 2.0)); }), "");
  const std::string line = shown_by([&] { console.write(train_row(10, 3.0)); });
  EXPECT_TRUE(contains(line,
                       "step 10/500  epoch 0.12  loss 2.5000  grad_norm 1.23  lr 4.90e-05  1,234 tok/s  "
                       "12.5 samples/s  mem 1.20 GB (peak 1.40 GB)  left 16 min 20 s"))
      << line;
}

TEST(Console, ALineSaysWhenItsStepsWaitedForData) {
  const auto line_with = [](double waited) {
    Console console({.logging_steps = 2});
    console.write(train_row(1, 1.0));
    MetricRow row = train_row(2, 1.0);
    row.values["data_wait_seconds"] = waited;
    return shown_by([&] { console.write(row); });
  };
  EXPECT_TRUE(contains(line_with(1.0), "samples/s  waits for data 25 %  mem")) << line_with(1.0);
  EXPECT_FALSE(contains(line_with(0.03), "waits"));
}

TEST(Console, EachIntervalStartsAnew) {
  Console console({.logging_steps = 1});
  console.start({}, 500);
  console.write(train_row(1, 100.0));
  EXPECT_TRUE(contains(shown_by([&] { console.write(train_row(2, 3.0)); }), "loss 3.0000"));
}

TEST(Console, TheLastStepHasALineAndSoHaveStepsBeforeAnEarlyEnd) {
  Console console({.logging_steps = 10});
  console.start({}, 3);
  console.write(train_row(2, 1.0));
  EXPECT_TRUE(contains(shown_by([&] { console.write(train_row(3, 1.0)); }), "step 3/3"));
  EXPECT_EQ(shown_by([&] { console.finish(); }), "");
  console.write(train_row(1, 1.0));
  EXPECT_TRUE(contains(shown_by([&] { console.finish(); }), "step 1/3"));
}

TEST(Console, ThePeakIsShownAsPartOfTheLimit) {
  Console console({.logging_steps = 1});
  const std::string line = shown_by([&] {
    console.write({"train",
                   {{"step", 1},
                    {"memory_allocated", 1'200'000'000},
                    {"memory_peak", 18'200'000'000},
                    {"memory_limit", 24'000'000'000}}});
  });
  EXPECT_TRUE(contains(line, "mem 1.20 GB (peak 18.2 GB, 76 % of 24.0 GB)")) << line;
}

TEST(Console, WhatARowLacksIsLeftOut) {
  Console console({.logging_steps = 1});
  const std::string line = shown_by([&] {
    console.write({"train", {{"step", 1}, {"loss", nullptr}, {"grad_norm", 0.5}}});
  });
  EXPECT_TRUE(contains(line, "step 1  grad_norm 0.5\n")) << line;
}

TEST(Console, ALossThatIsNoNumberShows) {
  Console console({.logging_steps = 1});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(contains(shown_by([&] {
                         console.write({"train", {{"step", 1}, {"loss", nan}}});
                       }),
                       "loss nan"));
}

TEST(Console, EvaluationsHaveALineOtherKindsNone) {
  Console console({.logging_steps = 1});
  const std::string evaluation = shown_by([&] {
    console.write({"eval",
                   {{"step", 500},
                    {"eval_loss", 1.23456},
                    {"eval_perplexity", 3.4367},
                    {"eval_samples", 1000},
                    {"eval_token_accuracy", 0.5678},
                    {"eval_seconds", 12.0}}});
  });
  EXPECT_TRUE(contains(evaluation,
                       "evaluation at step 500  eval_loss 1.2346  perplexity 3.437  "
                       "token accuracy 56.78 %  1,000 samples  in 12 s"))
      << evaluation;
  const std::string answers = shown_by([&] {
    console.write({"eval",
                   {{"step", 500},
                    {"eval_exact_match", 0.25},
                    {"eval_rougeL", 0.61234},
                    {"eval_bleu", 12.345},
                    {"eval_generated_samples", 200}}});
  });
  EXPECT_TRUE(contains(answers, "answers  200 samples  exact match 25.00 %  rougeL 0.6123  bleu 12.3"))
      << answers;
  EXPECT_EQ(shown_by([&] { console.write({"memory", {{"step", 1}}}); }), "");
}

TEST(Console, TheStartBlockHasTwoColumns) {
  Console console({});
  const std::string block = shown_by([&] {
    console.start({{{"model", "t5"}, {"effective batch", "128"}}}, 10);
  });
  EXPECT_TRUE(contains(block, "model            t5\n")) << block;
  EXPECT_TRUE(contains(block, "effective batch  128\n")) << block;
}

TEST(Console, QuietShowsNothing) {
  log::set_level(log::Level::warning);
  const std::string shown = shown_by([] {
    Console console({.logging_steps = 1, .progress_bar = true});
    console.start({{{"model", "t5"}}}, 10);
    console.write(train_row(1, 1.0));
    console.finish();
  });
  log::set_level(log::Level::info);
  EXPECT_EQ(shown, "");
}

TEST(Console, WithoutATerminalThereAreOnlyLines) {
  const std::string shown = shown_by([] {
    Console console({.logging_steps = 1});
    console.start({}, 10);
    for (int64_t step : {1, 2}) console.write(train_row(step, 1.0));
  });
  EXPECT_EQ(count(shown, "\r"), 0u);
  EXPECT_EQ(count(shown, "\x1b"), 0u);
  EXPECT_EQ(count(shown, "\n"), 2u);
}

TEST(Console, TheBarIsClearedBeforeALineAndAtTheEnd) {
  const std::string shown = shown_by([] {
    Console console({.logging_steps = 10, .progress_bar = true});
    console.start({}, 100);
    console.write(train_row(50, 1.0));
    log::warning("something");
    console.finish();
  });
  const size_t bar = shown.find("[===="), cleared = shown.find("\r\x1b[K", bar),
               line = shown.find("something");
  ASSERT_NE(bar, std::string::npos) << shown;
  EXPECT_LT(bar, cleared);
  EXPECT_LT(cleared, line);
  EXPECT_TRUE(contains(shown, "50 %  step 50/100  loss 1.0000  left 1 min 40 s")) << shown;
}

TEST(Console, TheBarIsDrawnSeldomButItsEndAlways) {
  const std::string shown = shown_by([] {
    Console console({.logging_steps = 1000, .progress_bar = true});
    for (int64_t i = 1; i <= 1000; i++) console.progress("reading", i, 1000);
  });
  EXPECT_LT(count(shown, "reading"), 100u);
  EXPECT_TRUE(contains(shown, "reading 1,000/1,000"));
}

TEST(ProgressLine, FitsIntoEveryWidth) {
  for (int width = 1; width < 200; width++) {
    const std::string line = progress_line("step 50/100", 50, 100, "loss 1.2345  left 3 min 20 s", width);
    EXPECT_LT(static_cast<int>(line.size()), width);
  }
}

TEST(ProgressLine, GivesUpTheBarFirstAndThenTheDetail) {
  const auto at_width = [](int width) { return progress_line("step 50/100", 50, 100, "loss 1.2345", width); };
  EXPECT_EQ(at_width(80).substr(0, 42), "[" + std::string(20, '=') + ">" + std::string(19, ' ') + "]");
  EXPECT_EQ(at_width(40), " 50 %  step 50/100  loss 1.2345");
  EXPECT_EQ(at_width(25), " 50 %  step 50/100");
}

TEST(ProgressLine, IsFullAtTheEndAndSurvivesOddTotals) {
  EXPECT_TRUE(contains(progress_line("s", 100, 100, "", 80), "====]  100 %"));
  EXPECT_TRUE(contains(progress_line("s", 0, 100, "", 80), "[>  "));
  EXPECT_TRUE(contains(progress_line("s", 5, 0, "", 80), "0 %"));
  EXPECT_TRUE(contains(progress_line("s", 7, 5, "", 80), "100 %"));
}

}  // namespace
}  // namespace trainer
