#include "base/progress.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include <gtest/gtest.h>

#include "trainer/base/log.h"

#include "base/progress_share.h"

namespace trainer {
namespace {

using Clock = std::chrono::steady_clock;

// What current_work() says as soon as it says anything.
std::string first_word(Clock::time_point begin) {
  std::string text;
  while (text.empty() && seconds_since(begin) < 60) {
    text = current_work();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return text;
}

TEST(Progress, ShortWorkIsNotMentioned) {
  testing::internal::CaptureStderr();
  const auto begin = Clock::now();
  {
    const Progress work("short");
    if (seconds_since(begin) < 2) {
      EXPECT_EQ(current_work(), "");
    }
  }
  EXPECT_EQ(current_work(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Progress, LongWorkSaysWhatItsPartsAreAndHowFarTheyAre) {
  testing::internal::CaptureStderr();
  log::seconds_of_silence();  // counts from here on
  const auto begin = Clock::now();
  {
    const Progress outer("loading");
    Progress inner("weights", 4'000'000'000, ProgressUnit::bytes);
    inner.add(1'000'000'000);
    const std::string text = first_word(begin);
    EXPECT_GE(seconds_since(begin), 2);
    EXPECT_TRUE(text.starts_with("loading: weights 1.00 GB of 4.00 GB (25 %), ")) << text;
    EXPECT_TRUE(text.ends_with(" left")) << text;
    for (double elapsed = 0; elapsed < 60 && log::seconds_of_silence() >= elapsed;) {  // no line was written
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      elapsed = seconds_since(begin);
    }
  }
  const std::string shown = testing::internal::GetCapturedStderr();
  EXPECT_NE(shown.find(" I loading: weights 1.00 GB of 4.00 GB (25 %), "), std::string::npos) << shown;
  EXPECT_EQ(shown.find('\x1b'), std::string::npos) << "a file is no terminal";
  EXPECT_EQ(std::ranges::count(shown, '\n'), 1) << shown;
}

// Eight answers side by side, none of which is done: half of all is.
TEST(Progress, TheTimeLeftFollowsFromTheShareThatIsDone) {
  testing::internal::CaptureStderr();
  const auto begin = Clock::now();
  const Progress work("answers", 8);
  set_share(work, 0.5);
  const std::string text = first_word(begin);
  testing::internal::GetCapturedStderr();
  EXPECT_TRUE(text.starts_with("answers 0 of 8 (50 %), ")) << text;
  const double passed = seconds_since(begin);
  const int left = std::atoi(text.substr(text.rfind(", ") + 2).c_str());
  EXPECT_TRUE(text.ends_with(" s left")) << text;
  EXPECT_GE(left, 1);
  EXPECT_LE(left, passed + 1);  // as long again
}

TEST(Progress, PartsCanBeHidden) {
  testing::internal::CaptureStderr();
  const auto begin = Clock::now();
  Progress outer("planning: plans made");
  outer.hide_parts();
  outer.add(7);
  const Progress inner("micro-batches", 8);
  const std::string text = first_word(begin);
  testing::internal::GetCapturedStderr();
  EXPECT_TRUE(text.starts_with("planning: plans made 7, for ")) << text;
}

TEST(Progress, WorkOfAnotherThreadIsNotAPartOfThis) {
  const auto begin = Clock::now();
  testing::internal::CaptureStderr();
  const Progress mine("mine");
  std::string text;
  std::jthread([&] {
    const Progress other("other");
    text = first_word(begin);
  }).join();
  testing::internal::GetCapturedStderr();
  EXPECT_TRUE(text.starts_with("mine, for ") || text.starts_with("other, for ")) << text;
}

TEST(WorkText, ALineFitsIntoEveryWidth) {
  const WorkText text{"loading: weights", "1 of 4", 0.25, "12 s left"};
  EXPECT_EQ(text.line(79), "[=======>                      ]  25 %  loading: weights  1 of 4  12 s left");
  EXPECT_EQ(text.line(50), "25 %  loading: weights  1 of 4  12 s left");
  EXPECT_EQ(text.line(35), "25 %  loading: weights  12 s left");
  EXPECT_EQ(text.line(25), "25 %  loading: weights");
  for (size_t width = 1; width < 100; width++) EXPECT_LE(text.line(width).size(), width);
}

}  // namespace
}  // namespace trainer
