// What the probe reports about GPUs. NVIDIA's two libraries are replaced by fakes, opened with dlopen.
#include "trainer/device/gpu_probe.h"

#include <dlfcn.h>
#include <pwd.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "device/nvml.h"
#include "support/error_message.h"

namespace trainer {
namespace {

using test::contains;

// A library that is loaded already is what dlopen finds by its name.
GpuSight look_at_stand_ins() {
  for (const char* library : {"libcuda.so.1", "libnvidia-ml.so.1"}) {
    if (dlopen((std::string(FAKE_NVIDIA_DIR "/") + library).c_str(), RTLD_NOW) == nullptr) {
      ADD_FAILURE() << dlerror();
    }
  }
  return system_gpus().look();
}

TEST(GpuProbe, CudaSaysWhichAndNvmlSaysHowMuch) {
  const GpuSight sight = look_at_stand_ins();
  EXPECT_EQ(sight.driver, "580.65.06");
  EXPECT_EQ(sight.cuda, "13.0");
  EXPECT_EQ(sight.why_none, "");
  ASSERT_EQ(sight.visible().size(), 2U);
  // CUDA's order, not NVML's
  const Gpu &third = sight.gpus[0], &instance = sight.gpus[1];
  EXPECT_EQ(third.index, 0);
  EXPECT_EQ(third.uuid, "GPU-03333333-3333-3333-3333-333333333333");
  EXPECT_EQ(third.free, 2'000'000'000);
  EXPECT_EQ(third.total, 24'000'000'000);
  EXPECT_EQ(instance.index, 1);
  EXPECT_EQ(instance.uuid, "MIG-01111111-1111-1111-1111-111111111111");
  EXPECT_EQ(instance.name, "First MIG 1");
  EXPECT_EQ(instance.free, 9'000'000'000);
}

TEST(GpuProbe, ShowsHiddenGpusLast) {
  const GpuSight sight = look_at_stand_ins();
  ASSERT_EQ(sight.gpus.size(), 4U);
  EXPECT_EQ(sight.gpus[2].text(), "hidden First MIG 2, 9.00 GB free of 24.0 GB");
  EXPECT_EQ(sight.gpus[3].text(), "hidden Second, 7.00 GB free of 24.0 GB");
}

TEST(GpuProbe, NamesWhoUsesIt) {
  const Gpu gpu = look_at_stand_ins().gpus.at(0);
  ASSERT_EQ(gpu.processes.size(), 100U);
  const GpuProcess& own = gpu.processes[0];
  EXPECT_EQ(own.pid, getpid());
  EXPECT_EQ(own.name, "test_device");
  EXPECT_EQ(own.user, getpwuid(getuid())->pw_name);
  EXPECT_EQ(own.bytes, 21'000'000'000);
  EXPECT_EQ(gpu.processes[1].bytes, std::nullopt);
  EXPECT_TRUE(gpu.text().starts_with("cuda:0 Third, 2.00 GB free of 24.0 GB (test_device of ")) << gpu.text();
  EXPECT_TRUE(contains(gpu.text(), ": 21.0 GB; process 4000000001; process 4000000002; 97 more)"))
      << gpu.text();
}

TEST(CudaDriver, AnOldOneIsNamedWithTheOneToInstall) {
  EXPECT_EQ(why_too_old(12020, 13000, "535.104.05"),
            "the NVIDIA driver 535.104.05 runs CUDA up to 12.2, and this LibTorch needs CUDA 13.0: install "
            "driver 580 "
            "or newer, or a LibTorch for CUDA 12");
  EXPECT_TRUE(contains(why_too_old(11040, 12080, ""), "the NVIDIA driver runs CUDA up to 11.4"));
  EXPECT_TRUE(contains(why_too_old(13000, 14000, ""), "install a newer driver"));
}

TEST(CudaDriver, OfTheSameMajorVersionItIsNewEnough) {
  EXPECT_EQ(why_too_old(13000, 13020, "580.65.06"), "");
  EXPECT_EQ(why_too_old(14000, 13000, "600.0"), "");
  EXPECT_EQ(why_too_old(0, 13000, ""), "") << "not known";
}

TEST(GpuProbe, WithoutNvmlTheDriverIsAsked) {
  CudaDriver driver;
  driver.devices = {{"A", "aaaa", 0, 8, 0}, {"B", "bbbb", 0, 8, 0}};
  const GpuSight sight = combine_sight(driver, {}, [](int index) {
    return index == 0 ? std::optional(FreeMemory{5, 10}) : std::nullopt;
  });
  ASSERT_EQ(sight.gpus.size(), 2U);
  EXPECT_EQ(sight.gpus[0].free, 5);
  EXPECT_EQ(sight.gpus[0].uuid, "GPU-aaaa");
  EXPECT_EQ(sight.gpus[0].problem, "");
  EXPECT_EQ(sight.gpus[1].text(), "cuda:1 B, its memory is not known");
}

TEST(GpuProbe, WithNvmlTheDriverIsNotAskedForMemory) {
  CudaDriver driver;
  driver.devices = {{"A", "aaaa", 0, 8, 0}};
  const NvmlSight nvml{{{-1, "A", "GPU-aaaa", 3, 4, {}, 8, 0, ""}}, "1"};
  const GpuSight sight = combine_sight(driver, nvml, [](int) -> std::optional<FreeMemory> {
    ADD_FAILURE() << "a context was opened";
    return std::nullopt;
  });
  EXPECT_EQ(sight.gpus.at(0).free, 3);
}

}  // namespace
}  // namespace trainer
