// Memory below the CPU: tensors in files.
#include "memory/offload.h"

#include <fstream>
#include <unistd.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/memory/host_allocator.h"

#include "memory/meta_memory.h"
#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

using test::contains;
using test::error_message;
using test::TemporaryDirectory;

const at::TensorOptions kFloats = at::TensorOptions(at::kFloat).device(at::kCPU);

// Bytes of this process's memory, without what lies in the page cache only.
int64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  int64_t all = 0, resident = 0;
  in >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

TEST(Offload, GivesZerosThatLibTorchUsesLikeAnyTensor) {
  TemporaryDirectory directory;
  set_offload_directory(directory.path());
  const at::Tensor small = offloaded_zeros({3, 5}, kFloats), other = offloaded_zeros({7}, kFloats);
  const at::Tensor large = offloaded_zeros({1000, 1000}, kFloats.dtype(at::kBFloat16));
  EXPECT_EQ(small.sizes(), (at::IntArrayRef{3, 5}));
  EXPECT_EQ(large.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(small.is_contiguous());
  EXPECT_EQ(large.count_nonzero().item<int64_t>() + small.count_nonzero().item<int64_t>(), 0);
  small.add_(1);
  EXPECT_EQ(other.count_nonzero().item<int64_t>(), 0);
  EXPECT_EQ(small.sum().item<float>(), 15);
  EXPECT_TRUE(is_offloaded(small) && is_offloaded(large) && is_offloaded(large.select(0, 999)));
  EXPECT_FALSE(is_offloaded(at::zeros({1000, 1000})));
  EXPECT_TRUE(seen_from(small, at::kCPU).is_same(small));
}

TEST(Offload, IsCountedApartFromTheDevicesMemory) {
  TemporaryDirectory directory;
  set_offload_directory(directory.path());
  const OffloadUse before = offload_use();
  const int64_t in_memory = host_memory().in_use;
  {
    const at::Tensor a = offloaded_zeros({1001}, kFloats), b = offloaded_zeros({1 << 20}, kFloats);
    EXPECT_EQ(offload_use().in_use - before.in_use, 4032 + (4 << 20));
    EXPECT_EQ(host_memory().in_use, in_memory);
  }
  EXPECT_EQ(offload_use().in_use, before.in_use);
  EXPECT_GE(offload_use().peak, before.in_use + 4032 + (4 << 20));
}

TEST(Offload, ReleasedTensorsKeepTheirValuesAndLeaveTheProcess) {
  TemporaryDirectory directory;
  set_offload_directory(directory.path());
  const int64_t bytes = 64 << 20, before = resident_bytes();
  const at::Tensor tensor = offloaded_zeros({bytes / 4}, kFloats);
  tensor.fill_(2.5);
  EXPECT_GT(resident_bytes() - before, bytes / 2);
  release_offloaded(tensor);
  EXPECT_LT(resident_bytes() - before, bytes / 8);
  fetch_offloaded(tensor);
  EXPECT_TRUE(tensor.eq(2.5).all().item<bool>());
}

TEST(Offload, OnMetaItIsRecordedApart) {
  const MetaRecorder recorder(64);
  const at::Tensor above = at::empty({100}, kFloats.device(at::kMeta));
  const at::Tensor below = offloaded_zeros({100}, kFloats.device(at::kMeta));
  ASSERT_EQ(recorder.events().size(), 2U);
  EXPECT_FALSE(recorder.events()[0].offloaded);
  EXPECT_TRUE(recorder.events()[1].offloaded);
  EXPECT_EQ(recorder.events()[1].bytes, 448);
}

TEST(Offload, ADiskWithoutRoomIsAnErrorThatSaysHowMuch) {
  TemporaryDirectory directory;
  set_offload_directory(directory.path());
  const std::string message =
      error_message<OutOfMemoryError>([&] { offloaded_zeros({int64_t{1} << 58}, kFloats); });
  EXPECT_TRUE(contains(message, "memory.offload_dir: " + directory.path().string())) << message;
  EXPECT_TRUE(contains(message, "no room for a file of 1152921")) << message;
}

TEST(Offload, ADirectoryThatCannotBeUsedIsAnErrorThatNamesTheKey) {
  TemporaryDirectory directory;
  std::ofstream(directory / "file") << "text";
  const std::string message =
      error_message<ConfigError>([&] { set_offload_directory(directory / "file" / "below"); });
  EXPECT_TRUE(contains(message, "memory.offload_dir: ")) << message;
  EXPECT_TRUE(contains(message, "choose another directory")) << message;
  const std::string of_file = error_message<ConfigError>([&] { set_offload_directory(directory / "file"); });
  EXPECT_TRUE(contains(of_file, "is a file, and not a directory; choose another directory")) << of_file;
}

}  // namespace
}  // namespace trainer
