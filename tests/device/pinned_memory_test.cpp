// Memory below a GPU, from a driver that is replaced by a fake.
#include <dlfcn.h>
#include <stdlib.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/base/error.h"

#include "device/cuda_driver.h"
#include "memory/offload.h"
#include "support/error_message.h"

namespace trainer {
namespace {

using test::contains;
using test::error_message;

class PinnedMemory : public ::testing::Test {
 protected:
  // A library that is loaded already is what dlopen finds by its name.
  void SetUp() override {
    ASSERT_NE(dlopen(FAKE_NVIDIA_DIR "/libcuda.so.1", RTLD_NOW), nullptr) << dlerror();
  }
  void TearDown() override { ::unsetenv("FAKE_HOST_MEMORY"); }

  const at::Device gpu_{at::kCUDA, 0};
};

TEST_F(PinnedMemory, IsZeros) {
  auto* data = static_cast<std::byte*>(allocate_pinned(10'000, 0));
  ASSERT_NE(data, nullptr);
  for (size_t i = 0; i < 10'000; i++) ASSERT_EQ(data[i], std::byte{0});
  free_pinned(data, 0);
}

TEST_F(PinnedMemory, IsRefusedWhereTheHostHasNoMore) {
  ::setenv("FAKE_HOST_MEMORY", "100", 1);
  EXPECT_EQ(allocate_pinned(101, 0), nullptr);
}

TEST_F(PinnedMemory, HoldsATensorOfTheHostThatTheGpuSees) {
  const int64_t before = offload_use().in_use;
  {
    const at::Tensor tensor = offloaded_zeros({3, 1000}, at::TensorOptions(at::kFloat).device(gpu_));
    EXPECT_TRUE(tensor.is_cpu());
    EXPECT_EQ(tensor.count_nonzero().item<int64_t>(), 0);
    const at::Tensor seen = seen_from(tensor, gpu_);
    EXPECT_EQ(seen.device(), gpu_);
    EXPECT_EQ(seen.sizes(), tensor.sizes());
    EXPECT_EQ(seen.scalar_type(), at::kFloat);
    EXPECT_EQ(seen.const_data_ptr(), tensor.const_data_ptr());
    EXPECT_TRUE(is_offloaded(tensor) && is_offloaded(seen));
    EXPECT_EQ(offload_use().in_use - before, 12'032);
  }
  EXPECT_EQ(offload_use().in_use, before);
}

TEST_F(PinnedMemory, LivesAsLongAsTheGpuSeesIt) {
  const int64_t before = offload_use().in_use;
  std::optional<at::Tensor> seen =
      seen_from(offloaded_zeros({500'000}, at::TensorOptions(at::kFloat).device(gpu_)), gpu_);
  EXPECT_EQ(offload_use().in_use - before, 2'000'000);
  seen.reset();
  EXPECT_EQ(offload_use().in_use, before);
}

TEST_F(PinnedMemory, AHostWithoutRoomIsAnErrorThatSaysHowMuch) {
  ::setenv("FAKE_HOST_MEMORY", "1000000", 1);
  const std::string message = error_message<OutOfMemoryError>(
      [&] { offloaded_zeros({500'000}, at::TensorOptions(at::kFloat).device(gpu_)); });
  EXPECT_TRUE(contains(message, "memory.offload: the host has no room for 2.00 MB more")) << message;
}

}  // namespace
}  // namespace trainer
