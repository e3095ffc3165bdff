#include "trainer/memory/host_allocator.h"

#include <random>
#include <sys/resource.h>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "support/error_message.h"

namespace trainer {
namespace {

constexpr int64_t kMegabyte = 1 << 20;
constexpr int64_t kUnit = 64 << 10;  // a block of whole megabytes has one more, for its header

class HostAllocatorTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { install_host_allocator(); }
  static at::Tensor megabytes(int64_t n) { return at::empty({n * kMegabyte}, at::kByte); }
  static void keep_nothing() {
    set_host_limit(1);
    set_host_limit(0);
  }
};

TEST_F(HostAllocatorTest, TensorsOfAllSizesAreAlignedAndTheirOwn) {
  std::vector<at::Tensor> tensors;
  for (const int64_t bytes : {1, 100, 200'000, 262'144, 300'000, 5'000'000, 40'000'000}) {
    tensors.push_back(at::full({bytes}, static_cast<int64_t>(tensors.size()), at::kByte));
  }
  for (size_t i = 0; i < tensors.size(); i++) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensors[i].const_data_ptr()) % 64, 0u);
    EXPECT_TRUE(tensors[i].eq(static_cast<int64_t>(i)).all().item<bool>()) << i;
  }
}

TEST_F(HostAllocatorTest, AFreedBlockServesSmallerTensors) {
  keep_nothing();
  const void* before = nullptr;
  {
    const at::Tensor first = megabytes(20);
    before = first.const_data_ptr();
  }
  const int64_t kept = host_memory().kept;
  const at::Tensor smaller = megabytes(11), rest = megabytes(8);
  EXPECT_EQ(smaller.const_data_ptr(), before);
  EXPECT_EQ(kept - host_memory().kept, 19 * kMegabyte + 2 * kUnit) << "both come from what was kept";
}

TEST_F(HostAllocatorTest, FreedNeighboursServeALargerTensor) {
  keep_nothing();
  megabytes(30);
  const void* before = nullptr;
  {
    const at::Tensor one = megabytes(10), two = megabytes(9), three = megabytes(8);
    before = one.const_data_ptr();
  }
  const int64_t kept = host_memory().kept;
  const at::Tensor larger = megabytes(29);
  EXPECT_EQ(larger.const_data_ptr(), before);
  EXPECT_EQ(kept - host_memory().kept, 29 * kMegabyte + kUnit);
}

// A tensor's bytes and values are its own, whatever was cut from and joined to what was free.
TEST_F(HostAllocatorTest, TensorsKeepTheirValuesWhileOthersComeAndGo) {
  std::mt19937 random(1);
  std::vector<std::pair<int64_t, at::Tensor>> tensors;
  for (int64_t i = 0; i < 600; i++) {
    if (tensors.size() > 12) {
      const size_t victim = random() % tensors.size();
      const auto& [value, tensor] = tensors[victim];
      ASSERT_TRUE(tensor.eq(value).all().item<bool>()) << i;
      tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(victim));
    }
    if (i % 97 == 0) keep_nothing();
    const int64_t bytes = 200'000 + random() % (kMegabyte << random() % 4);
    tensors.emplace_back(i % 256, at::full({bytes}, i % 256, at::kByte));
  }
}

// Tensors as a model of six layers has them in a micro-batch of `tokens` tokens: some live until the backward
// pass, others until the next layer.
void pass(int64_t tokens) {
  std::vector<at::Tensor> kept;
  for (int64_t layer = 0; layer < 6; layer++) {
    const at::Tensor hidden = at::ones({tokens, 576}), wide = at::ones({tokens, 1536}),
                     up = at::ones({tokens, 1536});
    kept.push_back(at::ones({tokens, 576}));
    kept.push_back(at::ones({tokens, 1536}));
  }
  while (!kept.empty()) {
    const at::Tensor gradient = at::ones({tokens, 1536});
    kept.pop_back();
  }
}

int64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

TEST_F(HostAllocatorTest, MicroBatchesOfAllSizesUseThePagesOfTheLargest) {
  const std::vector<int64_t> sizes{1024, 700, 811, 333, 1000, 512, 960, 127, 640};
  for (const int64_t tokens : sizes) pass(tokens);
  const int64_t before = page_faults();
  for (int i = 0; i < 5; i++) {
    for (const int64_t tokens : sizes) pass(tokens - 3 * i);
  }
  EXPECT_LT(page_faults() - before, 200)
      << "of a gigabyte that was written: 500 huge pages, or 250,000 others";
}

TEST_F(HostAllocatorTest, WhatIsKeptAddsNothingToThePeak) {
  for (int64_t n = 6; n < 360; n += 18) {  // more at once than any other test has had
    const std::vector<at::Tensor> some{megabytes(n), megabytes(360 - n), megabytes(2 * n)};
    const HostMemory memory = host_memory();
    EXPECT_LE(memory.in_use + memory.kept, memory.peak + 33 * kMegabyte) << "32 MB, and whole units";
  }
  const HostMemory memory = host_memory();
  EXPECT_LE(memory.in_use + memory.kept, memory.peak + 33 * kMegabyte);
  EXPECT_GT(memory.kept, 0);
}

TEST_F(HostAllocatorTest, WhatTheMachineDoesNotHaveIsLibTorchsOutOfMemoryError) {
  EXPECT_THROW(at::empty({int64_t{1} << 50}, at::kByte), c10::OutOfMemoryError);
}

TEST_F(HostAllocatorTest, EveryTensorIsCountedInWholeCacheLines) {
  const HostMemory before = host_memory();
  reset_host_peak();
  {
    const at::Tensor small = at::empty({1}, at::kFloat), large = megabytes(3),
                     odd = at::empty({65}, at::kByte);
    EXPECT_EQ(host_memory().in_use - before.in_use, 64 + 3 * kMegabyte + 128);
    EXPECT_EQ(host_memory().allocations - before.allocations, 3);
  }
  EXPECT_EQ(host_memory().in_use, before.in_use);
  EXPECT_EQ(host_memory().peak - before.in_use, 64 + 3 * kMegabyte + 128);
  reset_host_peak();
  EXPECT_EQ(host_memory().peak, before.in_use);
}

class Limited : public HostAllocatorTest {
 protected:
  void SetUp() override { set_host_limit(host_memory().in_use + 100 * kMegabyte); }
  void TearDown() override { set_host_limit(0); }
};

TEST_F(Limited, WhatFitsExactlyIsGivenAndAByteMoreIsNot) {
  const at::Tensor most = megabytes(100);
  const HostMemory full = host_memory();
  EXPECT_EQ(full.in_use, full.limit);
  EXPECT_THROW(at::empty({1}, at::kByte), c10::OutOfMemoryError);
  EXPECT_EQ(host_memory().in_use, full.in_use) << "a refused allocation leaves no trace";
  EXPECT_EQ(last_host_shortage().asked, 64);
  EXPECT_EQ(last_host_shortage().free, 0);
  EXPECT_EQ(last_host_shortage().allocated, full.in_use);
}

TEST_F(Limited, TheMessageSaysWhatWasAskedAndWhatThereIs) {
  const at::Tensor some = megabytes(10);
  const std::string message = test::error_message<c10::OutOfMemoryError>([] { megabytes(200); });
  EXPECT_NE(message.find("209.7 MB asked for"), std::string::npos) << message;
  EXPECT_NE(message.find("94.4 MB free of the limit"), std::string::npos) << message;
}

TEST_F(Limited, FreeBlocksMakeRoom) {
  for (const int64_t n : {90, 40, 70, 13, 99}) {
    const at::Tensor one = megabytes(n);
    const HostMemory memory = host_memory();
    EXPECT_LE(memory.in_use + memory.kept, memory.limit);
  }
  std::vector<at::Tensor> many;
  for (int n = 0; n < 400; n++) {
    many.push_back(at::empty({200'000}, at::kByte));
    const HostMemory memory = host_memory();
    ASSERT_LE(memory.in_use + memory.kept, memory.limit);
  }
}

TEST_F(Limited, MemoryFromElsewhereCountsAsLongAsItLives) {
  const int64_t before = host_memory().in_use;
  {
    const HostCharge mapped(60 * kMegabyte);
    EXPECT_EQ(host_memory().in_use - before, 60 * kMegabyte);
    EXPECT_THROW(megabytes(41), c10::OutOfMemoryError);
    EXPECT_THROW(HostCharge(41 * kMegabyte), c10::OutOfMemoryError);
    megabytes(40);
  }
  EXPECT_EQ(host_memory().in_use, before);
  megabytes(100);
}

TEST_F(HostAllocatorTest, ATestCanFailAnAllocationAndALaterOne) {
  fail_host_allocation(2, 3);
  at::empty({1});
  EXPECT_THROW(at::empty({1}), c10::OutOfMemoryError);
  at::empty({1});
  at::empty({1});
  EXPECT_THROW(at::empty({1}), c10::OutOfMemoryError);
  for (int i = 0; i < 9; i++) at::empty({1});
}

}  // namespace
}  // namespace trainer
