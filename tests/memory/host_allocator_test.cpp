#include "trainer/memory/host_allocator.h"

#include <vector>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

namespace trainer {
namespace {

constexpr int64_t kMegabyte = 1 << 20;

class HostAllocatorTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { install_host_allocator(); }
  static at::Tensor megabytes(int64_t n) { return at::empty({n * kMegabyte}, at::kByte); }
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

TEST_F(HostAllocatorTest, AFreedBlockServesTheNextTensorOfAboutItsSize) {
  const void* before = nullptr;
  {
    const at::Tensor first = megabytes(20);
    before = first.const_data_ptr();
  }
  const at::Tensor smaller = megabytes(19);
  EXPECT_EQ(smaller.const_data_ptr(), before);
  const int64_t in_use = host_memory().in_use;
  const at::Tensor much_smaller = megabytes(1);
  EXPECT_LT(host_memory().in_use - in_use, 2 * kMegabyte) << "a small tensor does not sit in a large block";
}

TEST_F(HostAllocatorTest, WhatIsKeptAddsNothingToThePeak) {
  for (int64_t n = 1; n < 60; n += 3) {
    const std::vector<at::Tensor> some{megabytes(n), megabytes(60 - n), megabytes(2 * n)};
    const HostMemory memory = host_memory();
    EXPECT_LE(memory.in_use + memory.kept, memory.peak_in_use + 32 * kMegabyte);
  }
  const HostMemory memory = host_memory();
  EXPECT_LE(memory.in_use + memory.kept, memory.peak_in_use + 32 * kMegabyte);
  EXPECT_GT(memory.kept, 0);
}

TEST_F(HostAllocatorTest, WhatTheMachineDoesNotHaveIsLibTorchsOutOfMemoryError) {
  EXPECT_THROW(at::empty({int64_t{1} << 50}, at::kByte), c10::OutOfMemoryError);
}

}  // namespace
}  // namespace trainer
