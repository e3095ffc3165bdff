#include "trainer/base/rank_place.h"

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainer/base/error.h"

namespace trainer {
namespace {

using Variables = std::map<std::string, std::string>;

const std::vector<const char*> kNames{"RANK",
                                      "WORLD_SIZE",
                                      "LOCAL_RANK",
                                      "LOCAL_WORLD_SIZE",
                                      "MASTER_ADDR",
                                      "MASTER_PORT",
                                      "TORCHELASTIC_USE_AGENT_STORE",
                                      "TORCHELASTIC_RESTART_COUNT",
                                      "TRAINER_LAUNCHER",
                                      "SLURM_PROCID",
                                      "SLURM_NTASKS",
                                      "SLURM_LOCALID",
                                      "SLURM_NODEID",
                                      "SLURM_JOB_ID",
                                      "SLURM_JOB_NODELIST",
                                      "SLURM_STEP_ID",
                                      "SLURM_STEP_NODELIST",
                                      "SLURM_STEP_NUM_TASKS",
                                      "SLURM_STEP_TASKS_PER_NODE",
                                      "SLURM_TASKS_PER_NODE",
                                      "SLURM_RESTART_COUNT"};

struct OnlyThese {
  explicit OnlyThese(const Variables& variables) {
    for (const char* name : kNames) ::unsetenv(name);
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~OnlyThese() {
    for (const char* name : kNames) ::unsetenv(name);
  }
};

RankPlace place_with(const Variables& variables) {
  const OnlyThese set(variables);
  return rank_place();
}

std::string place_refusal(const Variables& variables) {
  try {
    place_with(variables);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

Variables joined(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

const Variables kTorchrun{{"RANK", "5"},         {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},   {"LOCAL_WORLD_SIZE", "4"},
                          {"MASTER_ADDR", "n1"}, {"MASTER_PORT", "29500"}};

const Variables kSlurm{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "3"},
                       {"SLURM_NTASKS", "6"},  {"SLURM_LOCALID", "1"},
                       {"SLURM_JOB_ID", "41"}, {"SLURM_STEP_NODELIST", "node[03-05,9],gpu1"},
                       {"SLURM_NODEID", "1"},  {"SLURM_STEP_TASKS_PER_NODE", "2(x3)"}};

TEST(RankPlace, WithoutALauncherAProcessIsAlone) {
  const RankPlace place = place_with({});
  EXPECT_EQ(place.rank, 0);
  EXPECT_EQ(place.count, 1);
  EXPECT_EQ(place.local_count, 1);
  EXPECT_EQ(place.launcher, "");
}

TEST(RankPlace, TorchrunSaysIt) {
  const RankPlace place = place_with(
      joined(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RESTART_COUNT", "2"}}));
  EXPECT_EQ(place.rank, 5);
  EXPECT_EQ(place.count, 8);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.local_count, 4);
  EXPECT_EQ(place.address, "n1");
  EXPECT_EQ(place.port, 29500);
  EXPECT_TRUE(place.hosted);
  EXPECT_EQ(place.attempt, "2");
  EXPECT_EQ(place.launcher, "torchrun");
}

TEST(RankPlace, OurOwnLauncherIsNamed) {
  EXPECT_EQ(place_with(joined(kTorchrun, {{"TRAINER_LAUNCHER", "trainer"}})).launcher, "trainer");
}

TEST(RankPlace, OneProcessOfTorchrunKnowsItsLauncher) {
  const RankPlace place = place_with({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_EQ(place.count, 1);
  EXPECT_EQ(place.launcher, "torchrun");
}

// RANK is also a name that scripts use for the rank of LoRA.
TEST(RankPlace, RankAloneAndAWorldOfOneMeanNothing) {
  EXPECT_EQ(place_with({{"RANK", "16"}}).launcher, "");
  EXPECT_EQ(place_with({{"WORLD_SIZE", "1"}}).launcher, "");
}

TEST(RankPlace, SlurmSaysItInAStep) {
  const RankPlace place = place_with(kSlurm);
  EXPECT_EQ(place.rank, 3);
  EXPECT_EQ(place.count, 6);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.local_count, 2);
  EXPECT_EQ(place.address, "node03");
  EXPECT_EQ(place.port, 20041);
  EXPECT_FALSE(place.hosted);
  EXPECT_EQ(place.launcher, "srun");
}

TEST(RankPlace, TheFirstMachineOfEachKindOfListIsFound) {
  const std::vector<std::pair<std::string, std::string>> lists{{"gpu1", "gpu1"},
                                                               {"gpu1,gpu2", "gpu1"},
                                                               {"node[7,9-12]", "node7"},
                                                               {"r[1-2]n[01-16],login", "r1n01"},
                                                               {"node[003-005].cluster", "node003.cluster"}};
  for (const auto& [list, host] : lists)
    EXPECT_EQ(place_with(joined(kSlurm, {{"SLURM_STEP_NODELIST", list}})).address, host) << list;
}

TEST(RankPlace, TheListOfTheJobCountsWhereTheStepHasNone) {
  Variables variables = joined(kSlurm, {{"SLURM_JOB_NODELIST", "a[2-3]"}});
  variables.erase("SLURM_STEP_NODELIST");
  EXPECT_EQ(place_with(variables).address, "a2");
}

TEST(RankPlace, MachinesMayHaveDifferentNumbersOfTasks) {
  const Variables uneven = joined(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "2(x2),1,1"}});
  EXPECT_EQ(place_with(joined(uneven, {{"SLURM_NODEID", "1"}})).local_count, 2);
  EXPECT_EQ(place_with(joined(uneven, {{"SLURM_NODEID", "3"}, {"SLURM_LOCALID", "0"}})).local_count, 1);
}

TEST(RankPlace, SlurmsPortAndAddressCanBeChosen) {
  EXPECT_EQ(place_with(joined(kSlurm, {{"SLURM_JOB_ID", "1234567"}})).port, 34567);
  const RankPlace place = place_with(joined(kSlurm, {{"MASTER_PORT", "1234"}, {"MASTER_ADDR", "10.0.0.1"}}));
  EXPECT_EQ(place.port, 1234);
  EXPECT_EQ(place.address, "10.0.0.1");
}

TEST(RankPlace, AJobThatSlurmHasQueuedAgainIsAnotherAttempt) {
  EXPECT_EQ(place_with(joined(kSlurm, {{"SLURM_RESTART_COUNT", "3"}})).attempt, "3");
}

// Slurm sets the task's variables also for the shell of an sbatch script, for the job's tasks.
TEST(RankPlace, TheShellOfAnSbatchScriptIsAlone) {
  EXPECT_EQ(place_with({{"SLURM_PROCID", "0"},
                        {"SLURM_NTASKS", "4"},
                        {"SLURM_LOCALID", "0"},
                        {"SLURM_JOB_ID", "7"},
                        {"SLURM_JOB_NODELIST", "a1"}})
                .count,
            1);
}

TEST(RankPlace, AStepOfOneTaskIsAlone) {
  EXPECT_EQ(place_with(joined(kSlurm, {{"SLURM_NTASKS", "1"}})).count, 1);
  // salloc's shell, a step of one task in a job of six
  EXPECT_EQ(place_with(joined(kSlurm, {{"SLURM_STEP_NUM_TASKS", "1"}})).count, 1);
}

TEST(RankPlace, TorchrunInsideAStepComesFirst) {
  const RankPlace place = place_with(joined(kSlurm, kTorchrun));
  EXPECT_EQ(place.rank, 5);
  EXPECT_EQ(place.launcher, "torchrun");
}

TEST(RankPlace, WhatIsMissingIsNamed) {
  for (const auto& [name, value] : kTorchrun) {
    if (name == "WORLD_SIZE") continue;
    Variables variables = kTorchrun;
    variables.erase(name);
    const std::string message = place_refusal(variables);
    EXPECT_NE(message.find("WORLD_SIZE is 8, but " + name + " is not set"), std::string::npos) << message;
  }
}

TEST(RankPlace, WhatIsNoNumberIsNamed) {
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT"}) {
    for (const char* value : {"two", "-1", "1x", "99999999999999999999"}) {
      const std::string message = place_refusal(joined(kTorchrun, {{name, value}}));
      EXPECT_NE(message.find(std::string(name) + " is '" + value + "'"), std::string::npos) << message;
    }
  }
}

TEST(RankPlace, ContradictionsAreRefused) {
  const std::vector<std::pair<Variables, std::string>> cases{
      {{{"RANK", "8"}}, "RANK is 8"},
      {{{"LOCAL_RANK", "4"}}, "LOCAL_RANK is 4"},
      {{{"LOCAL_WORLD_SIZE", "9"}}, "LOCAL_WORLD_SIZE is 9"},
      {{{"WORLD_SIZE", "0"}}, "WORLD_SIZE is 0"},
      {{{"MASTER_PORT", "70000"}}, "MASTER_PORT is 70000"}};
  for (const auto& [variables, part] : cases) {
    const std::string message = place_refusal(joined(kTorchrun, variables));
    EXPECT_NE(message.find(part), std::string::npos) << part << ": " << message;
  }
  EXPECT_NE(place_refusal(joined(kSlurm, {{"SLURM_PROCID", "6"}})).find("SLURM_PROCID is 6"),
            std::string::npos);
  EXPECT_NE(
      place_refusal(joined(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "2("}})).find("SLURM_STEP_TASKS_PER_NODE"),
      std::string::npos);
  EXPECT_NE(place_refusal(joined(kSlurm, {{"SLURM_STEP_NODELIST", "node[1-"}})).find("SLURM_STEP_NODELIST"),
            std::string::npos);
}

}  // namespace
}  // namespace trainer
