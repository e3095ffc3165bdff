#include "run/out_of_memory.h"

#include <new>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/formats/checkpoint.h"
#include "trainer/memory/host_allocator.h"
#include "trainer/run/train.h"

#include "device/gpu_wait.h"
#include "run/tiny_run.h"
#include "support/error_message.h"

namespace trainer {
namespace {

using test::contains;
using test::error_message;
using test::TinyRun;

class RunOutOfMemory : public ::testing::Test {
 protected:
  explicit RunOutOfMemory(const std::vector<std::string>& settings = {})
      : config_(tiny_.config("out", settings)) {}
  ~RunOutOfMemory() override { set_host_limit(0); }

  // A device with room is the CPU once its limit is lifted.
  static std::optional<DeviceLease> cpu_with_room() {
    set_host_limit(0);
    return DeviceLease{at::kCPU, {}, {}};
  }
  // Lets the rehearsal run out of memory, and go on there.
  void move_to_the_cpu() {
    OutOfMemoryHandler handler(parts_, progress_, checkpoints_, {}, cpu_with_room);
    set_host_limit(host_memory().in_use + 1000);
    handler.rehearse();
    ASSERT_TRUE(parts_.has_moved);
  }
  void take_step() {
    const EffectiveBatch batch = load_effective_batch(
        parts_.train, parts_.order.step_at(progress_.position.samples_seen, config_.effective_batch_size()));
    handler_.step(batch);
    progress_.advance(batch);
  }
  std::string message_when(const std::function<void()>& work) {
    return error_message<OutOfMemoryError>([&] { handler_.guard(work); });
  }

  TinyRun tiny_;
  const Config config_;
  OutputDirectory output_ = OutputDirectory::open(config_);
  Resumption start_ = find_resumption(config_, output_);
  RunParts parts_{config_, output_, start_};
  bool begun_ = (begin_run(output_, start_), true);
  RunProgress progress_{parts_.resolved, parts_.length};
  Checkpoints checkpoints_{parts_, progress_};
  OutOfMemoryHandler handler_{parts_, progress_, checkpoints_};
};

TEST_F(RunOutOfMemory, BeforeTheFirstStepThereIsNothingToSave) {
  const std::string message = message_when([] { throw OutOfMemoryError("the model takes all"); });
  EXPECT_TRUE(contains(message, "the model takes all\nNo step was finished")) << message;
  EXPECT_TRUE(checkpoint_steps(tiny_.output("out")).empty());
}

TEST_F(RunOutOfMemory, TheStateOfTheLastStepIsSavedAndNamed) {
  const std::string message = message_when([&] {
    take_step();
    take_step();
    throw std::bad_alloc();
  });
  const auto checkpoint = tiny_.output("out") / "checkpoint-2";
  EXPECT_TRUE(contains(message, "out of memory between steps: ")) << message;
  EXPECT_TRUE(contains(message, "The weights of step 2, the last one, are in " + checkpoint.string()))
      << message;
  EXPECT_TRUE(read_checkpoint(checkpoint).files.contains("optimizer.safetensors"));
  EXPECT_EQ(read_position(checkpoint).samples_seen, 8);
}

TEST_F(RunOutOfMemory, TheRehearsalAndTheStepsGoOnOnTheNextDevice) {
  int moves = 0;
  OutOfMemoryHandler handler(
      parts_, progress_, checkpoints_, [&] { moves++; }, cpu_with_room);
  const auto without_room = [&](const std::function<void()>& work) {
    set_host_limit(host_memory().in_use + 1000);
    work();
    EXPECT_EQ(host_memory().limit, 0);
  };
  without_room([&] { handler.rehearse(); });
  EXPECT_EQ(moves, 1);
  EXPECT_TRUE(parts_.has_moved);
  EXPECT_TRUE(parts_.learned_budgets().empty()) << "a run that resumes begins on the first device";
  const EffectiveBatch batch = load_effective_batch(parts_.train, parts_.order.step_at(0, 4));
  without_room([&] { handler.step(batch); });
  EXPECT_EQ(moves, 2);
  EXPECT_TRUE(contains(read_file(tiny_.output("out") / "metrics.jsonl"), "\"stage\":\"device\""));
}

TEST_F(RunOutOfMemory, OthersMayTakeTheGpuThatItLeaves) {
  const auto take = [&] { return GpuLock::try_take(tiny_.output("locks"), "GPU-1").lock; };
  parts_.lease.lock = take();
  ASSERT_TRUE(parts_.lease.lock);
  ASSERT_FALSE(take());
  move_to_the_cpu();
  EXPECT_TRUE(take());
}

class RunWithAShareOfMemory : public RunOutOfMemory {
 protected:
  RunWithAShareOfMemory() : RunOutOfMemory({"memory.limit=0.5"}) {}
};

TEST_F(RunWithAShareOfMemory, TakesThatShareOfTheCpusToo) {
  move_to_the_cpu();
  EXPECT_GT(host_memory().limit, 0);
}

class RunWithALimitInBytes : public RunOutOfMemory {
 protected:
  RunWithALimitInBytes() : RunOutOfMemory({"memory.limit=2GB"}) {}
};

TEST_F(RunWithALimitInBytes, HasNoneOnTheCpuBecauseItWasTheGpus) {
  move_to_the_cpu();
  EXPECT_EQ(host_memory().limit, 0);
}

TEST_F(RunOutOfMemory, WithoutAnotherDeviceTheRehearsalEndsTheRun) {
  OutOfMemoryHandler handler(parts_, progress_, checkpoints_, {}, [] { return std::nullopt; });
  set_host_limit(host_memory().in_use + 1000);
  const std::string message = error_message<OutOfMemoryError>([&] { handler.rehearse(); });
  set_host_limit(0);
  EXPECT_TRUE(contains(message, "out of memory (memory test)")) << message;
  EXPECT_FALSE(parts_.has_moved);
}

TEST_F(RunOutOfMemory, OtherErrorsPassAsTheyAre) {
  take_step();
  EXPECT_EQ(error_message<DataError>([&] { handler_.guard([] { throw DataError("row 3"); }); }), "row 3");
  EXPECT_TRUE(checkpoint_steps(tiny_.output("out")).empty());
}

}  // namespace
}  // namespace trainer
