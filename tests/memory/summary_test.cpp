#include "trainer/memory/summary.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/device/device.h"
#include "trainer/memory/host_allocator.h"

#include "support/error_message.h"

namespace trainer {
namespace {

constexpr int64_t kTensorMB = 1'000'000;

TEST(MemorySummary, CountsTensorsOnTheCpu) {
  install_host_allocator();
  const MemorySummary before = memory_summary(c10::kCPU);
  {
    const at::Tensor tensor = at::ones({64 * kTensorMB / 4}, at::kFloat);
    const MemorySummary with = memory_summary(c10::kCPU);
    EXPECT_NEAR(static_cast<double>(with.allocated - before.allocated), 64.0 * kTensorMB, 3.0 * kTensorMB);
    EXPECT_GE(with.peak, with.allocated);
    EXPECT_GE(with.reserved, with.allocated);
    EXPECT_GE(with.resident, 64 * kTensorMB);
  }
  const MemorySummary after = memory_summary(c10::kCPU);
  EXPECT_EQ(after.allocated, before.allocated);
  EXPECT_GE(after.peak, before.allocated + 64 * kTensorMB);
}

TEST(MemorySummary, IsALine) {
  MemorySummary summary{c10::Device(c10::kCUDA, 0), 12'300 * kTensorMB, 14'000 * kTensorMB,
                        18'200 * kTensorMB,         24'000 * kTensorMB, 3'000 * kTensorMB};
  EXPECT_EQ(summary.text(), "allocated 12.3 GB, reserved 14.0 GB, peak 18.2 GB, 76 % of 24.0 GB");
  summary.device = c10::kCPU;
  summary.limit = 0;
  EXPECT_EQ(summary.text(), "allocated 12.3 GB, reserved 14.0 GB, peak 18.2 GB, resident 3.00 GB");
}

}  // namespace
}  // namespace trainer
