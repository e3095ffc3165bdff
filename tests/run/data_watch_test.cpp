#include <gtest/gtest.h>

#include "run/watches.h"

namespace trainer {
namespace {

// What is told over so many equal steps, the first one aside.
std::vector<std::string> told(int64_t steps, const StepSeconds& seconds) {
  const Config config;
  DataWatch watch;
  watch.add(seconds, config);
  std::vector<std::string> told;
  for (int64_t i = 0; i < steps; i++) {
    if (const std::string text = watch.add(seconds, config); !text.empty()) told.push_back(text);
  }
  return told;
}

TEST(DataWatch, StepsThatWaitAreToldOnceWithWhatHelps) {
  const std::vector<std::string> texts = told(200, {2, 0.5});
  ASSERT_EQ(texts.size(), 1u);
  for (const char* part : {"20 steps", "25 %", "training.num_workers (now 2)", "data.prefetch (now 2)"})
    EXPECT_NE(texts[0].find(part), std::string::npos) << texts[0];
}

TEST(DataWatch, ALittleWaitingIsNoMatter) { EXPECT_TRUE(told(200, {2, 0.19}).empty()); }

TEST(DataWatch, AFewStepsOrSecondsSayNothing) {
  EXPECT_TRUE(told(19, {100, 90}).empty());
  EXPECT_TRUE(told(200, {0.1, 0.09}).empty());
}

TEST(DataWatch, TheFirstStepMayWait) {
  const Config config;
  DataWatch watch;
  watch.add({100, 99}, config);
  for (int i = 0; i < 40; i++) EXPECT_EQ(watch.add({2, 0}, config), "");
}

}  // namespace
}  // namespace trainer
