// Which GPU a run takes, and how it waits for one, on a simulated machine with its own clock.
#include "trainer/device/acquire_device.h"

#include <fcntl.h>
#include <fstream>
#include <functional>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "trainer/base/error.h"

#include "device/gpu_wait.h"
#include "device/rank_device.h"
#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

using test::contains;
using test::error_message;

constexpr int64_t kGB = 1'000'000'000;

Gpu gpu(int index, int64_t free_gb, int64_t total_gb = 24) {
  return {index, "Card", "GPU-" + std::to_string(index), free_gb * kGB, total_gb * kGB, {}, 8, 0, ""};
}

class FakeGpus final : public GpuProbe {
 public:
  GpuSight look() override {
    looks++;
    return sight;
  }
  GpuSight sight;
  int looks = 0;
};

class AcquireDevice : public ::testing::Test {
 protected:
  void show(std::vector<Gpu> gpus) { gpus_.sight.gpus = std::move(gpus); }

  DeviceLease acquire(const std::string& wanted) { return acquire_device(wanted, config_, machine_); }
  std::string refused(const std::string& wanted) {
    return error_message<DeviceError>([&] { acquire(wanted); });
  }

  test::TemporaryDirectory directory_;
  FakeGpus gpus_;
  GpuConfig config_;
  double now_ = 1000;
  std::vector<double> pauses_;
  std::vector<std::string> lines_, warnings_;
  std::string no_cuda_;
  std::function<bool()> while_asleep_ = [] { return true; };
  Machine machine_{gpus_,
                   [this] { return no_cuda_; },
                   directory_.path(),
                   [this] { return now_; },
                   [this](double seconds) {
                     pauses_.push_back(seconds);
                     now_ += seconds;
                     return while_asleep_();
                   },
                   [this](const std::string& line) { lines_.push_back(line); },
                   [this](const std::string& line) { warnings_.push_back(line); }};
};

RankPlace local_place(int64_t rank, int64_t count) {
  RankPlace place;
  place.rank = place.local_rank = rank;
  place.count = place.local_count = count;
  return place;
}

TEST_F(AcquireDevice, EachRankOfAMachineHasAGpuOfItsOwn) {
  show({gpu(0, 3), gpu(1, 20), gpu(2, 8)});
  for (const char* wanted : {"auto", "cuda"}) {
    EXPECT_EQ(device_of_rank(wanted, local_place(0, 3), machine_), "cuda:0");
    EXPECT_EQ(device_of_rank(wanted, local_place(2, 3), machine_), "cuda:2");
    EXPECT_EQ(device_of_rank(wanted, local_place(0, 1), machine_), wanted);
  }
  EXPECT_EQ(device_of_rank("cpu", local_place(2, 3), machine_), "cpu");
  EXPECT_TRUE(
      contains(error_message<DeviceError>([&] { device_of_rank("auto", local_place(3, 4), machine_); }),
               "shows 3 GPUs"));
  EXPECT_TRUE(contains(
      error_message<ConfigError>([&] { device_of_rank("cuda:1", local_place(1, 2), machine_); }), "cuda:1"));
}

TEST_F(AcquireDevice, RanksThatSeeOneGpuEachTakeIt) {
  show({gpu(0, 3)});
  EXPECT_EQ(device_of_rank("auto", local_place(1, 2), machine_), "cuda:0");
  show({});
  EXPECT_EQ(device_of_rank("auto", local_place(1, 2), machine_), "auto");
}

TEST_F(AcquireDevice, TheGpuBehindANameIsKnownByItsUuid) {
  show({gpu(0, 3), gpu(1, 20)});
  EXPECT_TRUE(contains(gpu_behind("cuda:1", machine_), gpu(1, 20).uuid));
  EXPECT_NE(gpu_behind("cuda:0", machine_), gpu_behind("cuda:1", machine_));
  EXPECT_EQ(gpu_behind("auto", machine_), "");
  EXPECT_EQ(gpu_behind("cpu", machine_), "");
  show({gpu(0, 3)});
  EXPECT_EQ(gpu_behind("auto", machine_), gpu_behind("cuda:0", machine_));
  show({});
  EXPECT_EQ(gpu_behind("auto", machine_), "");
}

TEST_F(AcquireDevice, TakesTheOneWithTheMostFreeMemory) {
  show({gpu(0, 3), gpu(1, 20), gpu(2, 8)});
  EXPECT_EQ(acquire("auto").device.str(), "cuda:1");
  EXPECT_EQ(acquire("cuda").device.str(), "cuda:1");
  EXPECT_EQ(acquire("cuda:2").device.str(), "cuda:2");
  EXPECT_EQ(acquire("cpu").device.str(), "cpu");
  EXPECT_EQ(find_best_device(0, machine_).str(), "cuda:1");
  EXPECT_EQ(find_best_device(21 * kGB, machine_).str(), "cpu");
}

TEST_F(AcquireDevice, LeavesOutHiddenAndBrokenGpus) {
  Gpu hidden = gpu(-1, 24), broken = gpu(0, 24);
  broken.problem = "GPU is lost";
  show({broken, gpu(1, 2), hidden});
  EXPECT_EQ(acquire("auto").device.str(), "cuda:1");
  EXPECT_EQ(find_best_device(0, machine_).str(), "cuda:1");
  EXPECT_TRUE(contains(refused("cuda:2"), "shows 2 GPU(s), cuda:0 to cuda:1"));
}

TEST_F(AcquireDevice, WithoutAGpuAutoIsTheCpuAndCudaAnError) {
  gpus_.sight.why_none = "no NVIDIA driver on this machine";
  config_.wait_for_gpu = true;
  EXPECT_EQ(acquire("auto").device.str(), "cpu");
  EXPECT_EQ(lines_, std::vector<std::string>{"using the CPU: no NVIDIA driver on this machine"});
  EXPECT_EQ(refused("cuda"),
            "device: cuda: no NVIDIA driver on this machine. Use device=cpu or device=auto.");
  EXPECT_TRUE(pauses_.empty());
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(AcquireDevice, WarnsWhenAGpuThatIsThereIsNotUsed) {
  show({gpu(0, 24)});
  no_cuda_ = "this LibTorch has no CUDA library";
  EXPECT_EQ(acquire("auto").device.str(), "cpu");
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_TRUE(
      warnings_[0].starts_with("using the CPU, which is far slower: this LibTorch has no CUDA library"));
}

TEST_F(AcquireDevice, WarnsWhenTheDriverDoesNotStart) {
  gpus_.sight.why_none = "the NVIDIA driver does not start: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH";
  gpus_.sight.fails = true;
  EXPECT_EQ(acquire("auto").device.str(), "cpu");
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_TRUE(contains(warnings_[0], "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"));
}

TEST_F(AcquireDevice, WithoutEnoughMemoryItEndsWithWhatItSaw) {
  show({gpu(0, 3), gpu(1, 9)});
  gpus_.sight.gpus[1].processes = {{4711, "python3", "ann", 15 * kGB}};
  config_.min_gpu_memory_mb = 10'000;
  EXPECT_EQ(refused("auto"),
            "device: auto: there is no GPU with 10.0 GB free:\n"
            "  cuda:0 Card, 3.00 GB free of 24.0 GB\n"
            "  cuda:1 Card, 9.00 GB free of 24.0 GB (python3 of ann, process 4711: 15.0 GB)\n"
            "Wait for one with gpu.wait_for_gpu=true, lower gpu.min_gpu_memory_mb, or use device=cpu.");
  EXPECT_FALSE(contains(refused("cuda:0"), "cuda:1"));
}

TEST_F(AcquireDevice, WaitsUntilOneHasEnough) {
  show({gpu(0, 3), gpu(1, 4)});
  config_ = {10'000, true, 60, 30};
  while_asleep_ = [this] {
    if (pauses_.size() == 3) gpus_.sight.gpus[0].free = 12 * kGB;
    return true;
  };
  EXPECT_EQ(acquire("auto").device.str(), "cuda:0");
  EXPECT_EQ(pauses_, (std::vector<double>{30, 30, 30}));
  ASSERT_EQ(lines_.size(), 3U);
  EXPECT_EQ(
      lines_[1],
      "waiting for a GPU with 10.0 GB free: cuda:0 Card, 3.00 GB free of 24.0 GB; cuda:1 Card, 4.00 GB free "
      "of 24.0 GB; next look in 30 s, for 59 min 30 s more");
}

TEST_F(AcquireDevice, EndsWhenTheTimeIsOver) {
  show({gpu(0, 3)});
  config_ = {10'000, true, /*minutes=*/1, /*seconds=*/45};
  const std::string message = refused("cuda:0");
  EXPECT_EQ(pauses_, (std::vector<double>{45, 15}));
  EXPECT_TRUE(
      contains(message, "there was no cuda:0 with 10.0 GB free within 1 min 00 s:\n  cuda:0 Card, 3.00"));
  EXPECT_TRUE(contains(message, "gpu.gpu_wait_timeout_minutes"));
}

TEST_F(AcquireDevice, DoesNotWaitForWhatCannotCome) {
  show({gpu(0, 3), gpu(1, 4)});
  config_ = {25'000, true, 60, 30};
  EXPECT_TRUE(contains(refused("auto"), "there will be no GPU with 25.0 GB free, even when nobody uses it"));
  EXPECT_TRUE(pauses_.empty());
}

TEST_F(AcquireDevice, ASignalEndsTheWaiting) {
  show({gpu(0, 3)});
  config_ = {10'000, true, 60, 30};
  while_asleep_ = [] { return false; };
  try {
    acquire("auto");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::interrupted);
  }
}

TEST_F(AcquireDevice, TwoWaitingRunsNeverTakeTheSame) {
  show({gpu(0, 20), gpu(1, 15)});
  config_ = {10'000, true, 60, 30};
  std::optional<DeviceLease> first = acquire("auto");
  const DeviceLease second = acquire("auto");
  EXPECT_EQ(first->device.str(), "cuda:0");
  EXPECT_EQ(second.device.str(), "cuda:1");
  while_asleep_ = [&] {
    if (pauses_.size() == 2) first.reset();  // the first run ends
    return true;
  };
  EXPECT_EQ(acquire("auto").device.str(), "cuda:0");
  EXPECT_TRUE(contains(lines_.at(0), "cuda:0 Card, 20.0 GB free of 24.0 GB, taken by process " +
                                         std::to_string(getpid()) + " of "));
}

TEST_F(AcquireDevice, WithoutWaitingALockedGpuIsTheLastChoice) {
  show({gpu(0, 20), gpu(1, 15)});
  DeviceLease first = acquire("auto");
  first.start.reset();
  const DeviceLease second = acquire("auto"), third = acquire("auto");
  EXPECT_EQ(second.device.str(), "cuda:1");
  EXPECT_EQ(third.device.str(), "cuda:0");
  EXPECT_EQ(third.lock, nullptr);
  ASSERT_EQ(lines_.size(), 1U);
  EXPECT_TRUE(contains(lines_[0], "cuda:0 is also used by another run, process "));
}

TEST_F(AcquireDevice, RunsThatShareAGpuStartOneAfterTheOther) {
  show({gpu(0, 20)});
  DeviceLease first = acquire("auto");
  while_asleep_ = [&] {
    if (pauses_.size() < 3) return true;
    first.start.reset();  // its first step is done, and its memory taken
    show({gpu(0, 8)});
    return true;
  };
  const DeviceLease second = acquire("auto");
  EXPECT_EQ(pauses_, (std::vector<double>{1, 1, 1}));
  EXPECT_NE(second.start, nullptr);
  ASSERT_EQ(lines_.size(), 2U);
  EXPECT_TRUE(contains(lines_[0], "cuda:0: process " + std::to_string(getpid()) + " of "));
  EXPECT_TRUE(contains(lines_[0], " is starting on it; waiting for up to 10 min"));
  EXPECT_TRUE(contains(lines_[1], "cuda:0 is also used by another run, process "));
}

TEST_F(AcquireDevice, WhatAStartTookCountsForTheNextOne) {
  show({gpu(0, 20)});
  config_.min_gpu_memory_mb = 10'000;
  DeviceLease first = acquire("auto");
  while_asleep_ = [&] {
    first.start.reset();
    show({gpu(0, 8)});
    return true;
  };
  EXPECT_TRUE(contains(refused("auto"), "there is no GPU with 10.0 GB free"));
}

TEST_F(AcquireDevice, AStartThatTakesLongIsNotAwaitedForEver) {
  show({gpu(0, 20)});
  const DeviceLease first = acquire("auto"), second = acquire("auto");
  EXPECT_EQ(second.device.str(), "cuda:0");
  EXPECT_EQ(second.start, nullptr);
  EXPECT_EQ(pauses_.size(), 600U);
}

TEST_F(AcquireDevice, AnotherGpuIsNeitherTheSameNorALockedOne) {
  show({gpu(0, 20), gpu(1, 15), gpu(2, 9)});
  config_.min_gpu_memory_mb = 10'000;
  const DeviceLease first = acquire("auto");
  const auto other = acquire_other_gpu(first.device, config_, machine_);
  ASSERT_TRUE(other);
  EXPECT_EQ(other->device.str(), "cuda:1");
  EXPECT_FALSE(acquire_other_gpu(first.device, config_, machine_));
}

TEST_F(AcquireDevice, AProcessThatIsKilledHoldsNothing) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto attempt = GpuLock::try_take(directory_.path(), "GPU-0");
    const char taken = attempt.lock != nullptr ? 'y' : 'n';
    if (write(ready[1], &taken, 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  char taken = 0;
  ASSERT_EQ(read(ready[0], &taken, 1), 1);
  EXPECT_EQ(taken, 'y');
  const auto refused = GpuLock::try_take(directory_.path(), "GPU-0");
  EXPECT_EQ(refused.lock, nullptr);
  EXPECT_TRUE(refused.holder.starts_with("process " + std::to_string(child) + " of ")) << refused.holder;
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_NE(GpuLock::try_take(directory_.path(), "GPU-0").lock, nullptr);
}

TEST_F(AcquireDevice, AllUsersCanTakeALock) {
  const auto directory = directory_ / "locks";
  const mode_t before = umask(077);
  EXPECT_NE(GpuLock::try_take(directory, "GPU-0").lock, nullptr);
  umask(before);
  struct stat status {};
  ASSERT_EQ(stat(directory.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 01777U);
  ASSERT_EQ(stat((directory / "GPU-0.lock").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0666U);
}

TEST_F(AcquireDevice, WhatLiesInPlaceOfALockIsNotFollowed) {
  std::ofstream(directory_ / "precious") << "keep";
  std::filesystem::create_symlink(directory_ / "precious", directory_ / "GPU-0.lock");
  ASSERT_EQ(mkfifo((directory_ / "GPU-1.lock").c_str(), 0666), 0);
  show({gpu(0, 20), gpu(1, 15)});
  EXPECT_EQ(acquire("auto").device.str(), "cuda:0");  // without a lock, which is said
  EXPECT_TRUE(contains(lines_.at(0), "GPUs cannot be locked"));
  EXPECT_FALSE(GpuLock::try_take(directory_.path(), "GPU-1").problem.empty());
  std::string text;
  std::ifstream(directory_ / "precious") >> text;
  EXPECT_EQ(text, "keep");
}

TEST_F(AcquireDevice, TheHoldersNameCannotChangeTheTerminal) {
  const auto lock = GpuLock::try_take(directory_.path(), "GPU-0");
  std::ofstream(directory_ / "GPU-0.lock") << "\x1b[2Jme\nmore";
  EXPECT_EQ(GpuLock::try_take(directory_.path(), "GPU-0").holder, "[2Jme");
}

}  // namespace
}  // namespace trainer
