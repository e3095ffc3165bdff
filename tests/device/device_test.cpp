#include "trainer/device/device.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "trainer/base/error.h"

#include "support/error_message.h"

namespace trainer {
namespace {

TEST(Device, Tf32IsASwitch) {
  use_tf32(true);
  EXPECT_TRUE(at::globalContext().allowTF32CuBLAS());
  use_tf32(false);
  EXPECT_FALSE(at::globalContext().allowTF32CuBLAS());
}

TEST(Deterministic, HoldsForAGpuWhileItLives) {
  const auto is_on = [] { return at::globalContext().deterministicAlgorithms(); };
  {
    const Deterministic gpu(c10::kCUDA, true);
    EXPECT_TRUE(is_on());
    EXPECT_FALSE(at::globalContext().deterministicAlgorithmsWarnOnly()) << "or attention would only warn";
    EXPECT_FALSE(at::globalContext().deterministicFillUninitializedMemory());
  }
  EXPECT_FALSE(is_on());
  const Deterministic off(c10::kCUDA, false), cpu(c10::kCPU, true);
  EXPECT_FALSE(is_on());
}

TEST(Device, TheCpuIsAlwaysThere) {
  EXPECT_TRUE(choose_device("cpu").is_cpu());
  EXPECT_TRUE(describe_device(c10::kCPU).starts_with("cpu ("));
  EXPECT_TRUE(computes_in_bf16(c10::kCPU));
}

TEST(Device, ANameThatIsNoneIsRefused) {
  for (const char* name : {"gpu", "cuda:", "cuda:x", "cuda:1x", "cuda:-1"}) {
    EXPECT_TRUE(test::contains(test::error_message<ConfigError>([&] { choose_device(name); }),
                               "is none of auto, cpu, cuda, cuda:N"))
        << name;
  }
}

}  // namespace
}  // namespace trainer
