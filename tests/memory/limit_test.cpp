#include "trainer/memory/limit.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/memory/host_allocator.h"

#include "support/error_message.h"

namespace trainer {
namespace {

std::optional<int64_t> on_cpu(const std::string& text) {
  return MemoryLimit::parse(text).bytes_on(c10::kCPU);
}

TEST(MemoryLimit, SizesArePowersOf1000OrOf1024) {
  EXPECT_EQ(on_cpu("18GB"), 18'000'000'000);
  EXPECT_EQ(on_cpu("16GiB"), int64_t{16} << 30);
  EXPECT_EQ(on_cpu("900MB"), 900'000'000);
  EXPECT_EQ(on_cpu("1.5 GB"), 1'500'000'000);
  EXPECT_EQ(on_cpu("640kB"), 640'000);
  EXPECT_EQ(on_cpu("2TiB"), int64_t{2} << 40);
}

TEST(MemoryLimit, AShareIsOfWhatIsFree) {
  const int64_t free = free_memory(c10::kCPU);
  EXPECT_GT(free, 0);
  const int64_t half = on_cpu("0.5").value();
  EXPECT_GT(half, free / 4);
  EXPECT_LT(half, free);
}

TEST(MemoryLimit, TheCpuHasNoneByDefault) { EXPECT_EQ(on_cpu(""), std::nullopt); }

TEST(MemoryLimit, WhatIsNoLimitIsRefused) {
  const std::string many(400, '9');
  for (const char* text : {"18", "1.5", "0", "0GB", "18gb", "GB", "-1GB", "18 GB free", ".", many.c_str()}) {
    const std::string message = test::error_message<ConfigError>([&] { MemoryLimit::parse(text); });
    EXPECT_TRUE(test::contains(message, "memory.limit")) << text;
  }
}

TEST(MemoryLimit, AppliedToTheCpuItBoundsTensors) {
  install_host_allocator();
  MemoryLimit::parse("10MB").apply(c10::kCPU);
  at::empty({9'000'000}, at::kByte);
  EXPECT_THROW(at::empty({11'000'000}, at::kByte), c10::OutOfMemoryError);
  set_host_limit(0);
}

}  // namespace
}  // namespace trainer
