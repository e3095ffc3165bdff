// Learning rates, compared with transformers.get_scheduler at every step (tests/goldens/schedules.json).
#include "trainer/optim/schedule.h"

#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace trainer {
namespace {

SchedulerType type_of(const std::string& name) {
  static const std::map<std::string, SchedulerType> types{
      {"linear", SchedulerType::linear},
      {"cosine", SchedulerType::cosine},
      {"constant", SchedulerType::constant},
      {"constant_with_warmup", SchedulerType::constant_with_warmup},
      {"polynomial", SchedulerType::polynomial},
      {"inverse_sqrt", SchedulerType::inverse_sqrt}};
  return types.at(name);
}

TEST(Schedule, AgreesWithTransformersAtEveryStep) {
  std::ifstream in(SOURCE_DIR "/tests/goldens/schedules.json");
  std::set<std::string> names;
  for (const auto& golden : nlohmann::json::parse(in)) {
    OptimizerConfig config;
    config.lr_scheduler_type = type_of(golden["name"]);
    config.learning_rate = golden["learning_rate"];
    config.warmup_steps = golden["warmup"];
    names.insert(golden["name"]);
    const Schedule schedule(config, golden["total"]);
    for (size_t step = 0; step < golden["values"].size(); step++) {
      const double expected = golden["values"][step];
      EXPECT_NEAR(schedule.learning_rate(static_cast<int64_t>(step)), expected, 1e-12 * config.learning_rate)
          << golden["name"] << " warmup " << golden["warmup"] << " of " << golden["total"] << " step "
          << step;
    }
  }
  EXPECT_EQ(names.size(), 6u);
}

TEST(Schedule, WarmupRatioIsRoundedUpToWholeSteps) {
  OptimizerConfig config;
  config.warmup_ratio = 0.03;
  EXPECT_EQ(Schedule(config, 101).warmup_steps(), 4);
}

TEST(Schedule, RelativeStepsFollowTheNumberOfUpdates) {
  OptimizerConfig config;
  config.relative_step = true;
  EXPECT_DOUBLE_EQ(Schedule(config, 50000).learning_rate(0), 1e-2);
  EXPECT_DOUBLE_EQ(Schedule(config, 50000).learning_rate(9999), 1e-2);
  EXPECT_DOUBLE_EQ(Schedule(config, 50000).learning_rate(39999), 5e-3);
  config.warmup_init = true;
  EXPECT_DOUBLE_EQ(Schedule(config, 50000).learning_rate(0), 1e-6);
  EXPECT_DOUBLE_EQ(Schedule(config, 50000).learning_rate(99), 1e-4);
  EXPECT_DOUBLE_EQ(Schedule(config, 50000).learning_rate(39999), 5e-3);
}

}  // namespace
}  // namespace trainer
