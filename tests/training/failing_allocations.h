// Steps in which each allocation fails once.
#pragma once

#include <set>
#include <string>

#include <gtest/gtest.h>

#include "trainer/base/log.h"
#include "trainer/memory/host_allocator.h"
#include "trainer/training/trainer.h"

#include "support/one_thread.h"

namespace trainer::test {

// Takes steps with `wanting`, in the nth of which the nth allocation fails, until one succeeds at once. After
// each, `ample` takes the same step without a failure and must have the same bits. A bench has a `trainer`, a
// step(replay) and an expect_same_bits(one, other, where) beside it.
template <class Bench>
void expect_same_bits_whichever_allocation_fails(Bench& wanting, Bench& ample) {
  const OneThread one_thread;
  install_host_allocator();
  log::set_level(log::Level::error);
  std::set<std::string> stages;
  wanting.trainer->on_recovery([&](const Recovery& recovery) { stages.insert(recovery.stage); });
  int64_t n = 1;
  for (bool failed = true; failed && !::testing::Test::HasFatalFailure(); n++) {
    wanting.trainer->budgets() = {};
    fail_host_allocation(n);
    const StepResult result = wanting.step();
    fail_host_allocation(0);
    const StepCuts cuts{result.cuts, result.recomputed_blocks, result.packed_budget};
    ample.step(&cuts);
    expect_same_bits(wanting, ample, ", allocation " + std::to_string(n));
    failed = result.retries > 0;
  }
  log::set_level(log::Level::info);
  EXPECT_GT(n, 100) << "allocations of a step";
  EXPECT_TRUE(stages.contains("optimizer"));
}

}  // namespace trainer::test
