#include "observe/console.h"

#include <cmath>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "trainer/base/log.h"

#include "base/text.h"
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
  console.start({}, {.total_steps = 500});
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
  console.start({}, {.total_steps = 500});
  console.write(train_row(1, 100.0));
  EXPECT_TRUE(contains(shown_by([&] { console.write(train_row(2, 3.0)); }), "loss 3.0000"));
}

TEST(Console, TheLastStepHasALineAndSoHaveStepsBeforeAnEarlyEnd) {
  Console console({.logging_steps = 10});
  console.start({}, {.total_steps = 3});
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

TEST(Console, OfSeveralRanksThePeakSaysWhose) {
  Console console({.logging_steps = 1});
  const std::string line = shown_by([&] {
    console.write({"train",
                   {{"step", 1},
                    {"memory_allocated", 1'200'000'000},
                    {"memory_peak", 18'200'000'000},
                    {"memory_peak_rank", 2},
                    {"memory_limit", 24'000'000'000}}});
  });
  EXPECT_TRUE(contains(line, "mem 1.20 GB (peak 18.2 GB of rank 2, 76 % of 24.0 GB)")) << line;
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
    console.start({{{"model", "t5"}, {"memory plan", "8 GB"}}}, {.total_steps = 10});
  });
  EXPECT_TRUE(contains(block, "model        t5\n")) << block;
  EXPECT_TRUE(contains(block, "memory plan  8 GB\n")) << block;
}

TEST(Console, QuietShowsNothing) {
  log::set_level(log::Level::warning);
  const std::string shown = shown_by([] {
    Console console({.logging_steps = 1});
    console.start({{{"model", "t5"}}}, {.total_steps = 10});
    console.write(train_row(1, 1.0));
    console.finish();
  });
  log::set_level(log::Level::info);
  EXPECT_EQ(shown, "");
}

TEST(Console, WithoutATerminalThereAreOnlyLines) {
  const std::string shown = shown_by([] {
    Console console({.logging_steps = 1});
    console.start({}, {.total_steps = 10});
    for (int64_t step : {1, 2}) console.write(train_row(step, 1.0));
  });
  EXPECT_EQ(count(shown, "\r"), 0u);
  EXPECT_EQ(count(shown, "\x1b"), 0u);
  EXPECT_EQ(count(shown, "\n"), 2u);
}

// A console in the middle of a run.
std::vector<std::string> live_lines(size_t width) {
  Console console({.logging_steps = 10});
  console.start({}, {.total_steps = 100, .evaluation_every = 20, .save_every = 20});
  for (int64_t step = 1; step <= 49; step++) {
    MetricRow row = train_row(step, 5.0 - 0.05 * static_cast<double>(step));
    row.values["memory_limit"] = 2'800'000'000;
    console.write(row);
  }
  console.write({"eval", {{"step", 20}, {"eval_loss", 1.5}, {"eval_seconds", 1.0}}});
  console.write({"eval", {{"step", 40}, {"eval_loss", 1.75}, {"eval_seconds", 1.0}}});
  console.write({"save", {{"step", 40}, {"seconds", 1.0}}});
  return console.live_lines(width);
}

TEST(Console, TheLiveBlockShowsWayLossMemoryAndEvents) {
  shown_by([] {
    const std::vector<std::string> lines = live_lines(100);
    ASSERT_EQ(lines.size(), 4u);
    EXPECT_EQ(lines[0], "[==============>               ]  49 %  step 49/100  epoch 0.12  left 1 min 49 s");
    EXPECT_TRUE(contains(lines[1], "loss 2.7500 ")) << lines[1];
    EXPECT_TRUE(contains(lines[1], "  lr 4.90e-05  1,234 tok/s")) << lines[1];
    EXPECT_EQ(lines[2], "[===============>              ]  memory 1.20 GB, peak 1.40 GB  50 %  of 2.80 GB");
    EXPECT_TRUE(contains(lines[3], "evaluation 1.7500  at step 40  lowest 1.5000 at step 20  saved step 40"))
        << lines[3];
  });
}

TEST(Console, TheLiveBlockFitsIntoFortyColumns) {
  shown_by([] {
    const std::vector<std::string> lines = live_lines(39);
    ASSERT_EQ(lines.size(), 4u);
    EXPECT_EQ(lines[0], "49 %  step 49/100  left 1 min 49 s");
    EXPECT_TRUE(lines[1].starts_with("loss 2.7500 ")) << lines[1];
    EXPECT_TRUE(lines[1].ends_with("  1,234 tok/s")) << lines[1];
    EXPECT_EQ(lines[2], "memory 1.20 GB, peak 1.40 GB  50 %");
    EXPECT_EQ(lines[3], "evaluation 1.7500  saved step 40");
  });
  for (size_t width = 10; width < 120; width++) {
    shown_by([&] {
      for (const std::string& line : live_lines(width)) EXPECT_LE(count_characters(line), width) << line;
    });
  }
}

TEST(Console, TheLiveBlockBeginsWithTheFirstStepOnly) {
  shown_by([] {
    Console console({});
    console.start({}, {.total_steps = 100});
    const std::vector<std::string> lines = console.live_lines(60);
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_TRUE(contains(lines[0], "0 %  step 0/100")) << lines[0];
  });
}

}  // namespace
}  // namespace trainer
