// The limit on a GPU, with an allocator that stands in for LibTorch's.
#include <fstream>
#include <regex>

#include <ATen/ATen.h>
#include <c10/core/AllocatorConfig.h>
#include <gtest/gtest.h>

#include "trainer/memory/limit.h"

#include "memory/fake_gpu.h"
#include "memory/set_up_device.h"

namespace trainer {
namespace {

constexpr int64_t kGB = 1'000'000'000;

class GpuLimit : public ::testing::Test {
 protected:
  void SetUp() override { gpus_.gpus = {{{80 * kGB, 80 * kGB, 0, 1}, {40 * kGB, 40 * kGB, 0, 1}}}; }
  void TearDown() override {
    for (const c10::Device gpu : {first_, second_}) lift_gpu_limit(gpu);
  }
  double fraction(size_t gpu) const { return gpus_.gpus[gpu].fraction; }

  test::FakeGpus& gpus_ = test::FakeGpus::install();
  const c10::Device first_{c10::kCUDA, 0}, second_{c10::kCUDA, 1};
};

TEST_F(GpuLimit, HoldsForItsGpuAlone) {
  EXPECT_EQ(MemoryLimit::parse("20GB").apply(first_), 20 * kGB - kCudaContextBytes);
  EXPECT_DOUBLE_EQ(fraction(0), 19.488 / 80);
  EXPECT_EQ(fraction(1), 1);
  EXPECT_EQ(limit_in_force(first_), 20 * kGB - kCudaContextBytes);
  EXPECT_EQ(process_limit(first_), 20 * kGB);
}

TEST_F(GpuLimit, CanBeAppliedAgainAndMoveToAnotherGpu) {
  MemoryLimit::parse("20GB").apply(first_);
  MemoryLimit::parse("0.5").apply(first_);
  EXPECT_DOUBLE_EQ(fraction(0), 0.5);
  MemoryLimit::parse("0.5").apply(second_);
  lift_gpu_limit(first_);
  EXPECT_EQ(fraction(0), 1);
  EXPECT_DOUBLE_EQ(fraction(1), 0.5);
  EXPECT_EQ(limit_in_force(second_), 20 * kGB);
}

TEST_F(GpuLimit, WithoutOneARunTakesMostOfWhatIsFree) {
  gpus_.gpus[0].free = 40 * kGB;
  EXPECT_EQ(MemoryLimit::parse("").apply(first_), 38 * kGB);
  EXPECT_DOUBLE_EQ(fraction(0), 0.475);
}

TEST_F(GpuLimit, AShareFollowsWhatOthersTakeAndGiveBack) {
  MemoryLimit::parse("").apply(first_);
  gpus_.gpus[0] = {30 * kGB, 80 * kGB, /*reserved=*/50 * kGB, fraction(0)};  // this process grew
  EXPECT_FALSE(follow_gpu_limit(first_));
  gpus_.gpus[0].free = 10 * kGB;  // another one came
  const auto changed = follow_gpu_limit(first_);
  ASSERT_TRUE(changed);
  EXPECT_EQ(changed->from, 76 * kGB);
  EXPECT_EQ(changed->to, 57 * kGB);
  EXPECT_DOUBLE_EQ(fraction(0), 57.0 / 80);
  EXPECT_FALSE(follow_gpu_limit(first_)) << "nothing has changed since";
  gpus_.gpus[0].free = 30 * kGB;  // and went
  EXPECT_EQ(follow_gpu_limit(first_)->to, 76 * kGB);
}

TEST_F(GpuLimit, ASizeFollowsNothing) {
  MemoryLimit::parse("60GB").apply(first_);
  gpus_.gpus[0].free = 10 * kGB;
  EXPECT_FALSE(follow_gpu_limit(first_));
  EXPECT_FALSE(follow_gpu_limit(second_)) << "it has no limit";
}

// The class stands for one of LibTorch's whose header needs CUDA's: a call finds its function by its place in
// the list.
TEST(GpuAllocator, HasLibTorchsFunctionsInLibTorchsOrder) {
  const auto virtuals = [](const std::string& file, const std::string& begin) {
    std::ifstream in(file);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const size_t from = text.find(begin), to = text.find("};", from);
    if (from == std::string::npos) return std::vector<std::string>{};
    const std::string body = text.substr(from, to - from);
    static const std::regex function("virtual [^(]*?(\\w+)\\(");
    std::vector<std::string> names;
    for (std::sregex_iterator i(body.begin(), body.end(), function); i != std::sregex_iterator(); ++i)
      names.push_back((*i)[1]);
    return names;
  };
  const std::vector<std::string> ours =
      virtuals(SOURCE_DIR "/src/memory/gpu_allocator.h", "class GpuAllocator : public c10::DeviceAllocator");
  std::vector<std::string> theirs = virtuals(TORCH_DIR "/include/c10/cuda/CUDACachingAllocator.h",
                                             "class CUDAAllocator : public DeviceAllocator");
  if (theirs.empty()) GTEST_SKIP() << "this LibTorch is for the CPU alone";
  ASSERT_EQ(ours.size(), 16U);
  ASSERT_GE(theirs.size(), ours.size());
  theirs.resize(ours.size());
  EXPECT_EQ(ours, theirs);
}

class ExpandableSegments : public ::testing::Test {
 protected:
  void SetUp() override { set("max_split_size_mb:64,expandable_segments:True"); }
  void TearDown() override { set(""); }
  static void set(const std::string& settings) { c10::CachingAllocator::setAllocatorSettings(settings); }
  static bool are_on() {
    return c10::CachingAllocator::AcceleratorAllocatorConfig::use_expandable_segments();
  }

  int calls_ = 0;
};

TEST_F(ExpandableSegments, AreTurnedOffWhereTheDriverRefusesThem) {
  settle_expandable_segments([&] {
    calls_++;
    TORCH_CHECK(!are_on(), "CUDA driver error: unknown error");
  });
  EXPECT_EQ(calls_, 2);
  EXPECT_FALSE(are_on());
  EXPECT_EQ(c10::CachingAllocator::AcceleratorAllocatorConfig::max_split_size(), size_t{64} << 20);
}

TEST_F(ExpandableSegments, StayOnWhereTheyWorkOrMemoryIsShort) {
  settle_expandable_segments([&] { calls_++; });
  EXPECT_THROW(
      settle_expandable_segments([] { TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory"); }),
      c10::OutOfMemoryError);
  EXPECT_TRUE(are_on());
  EXPECT_EQ(calls_, 1);
}

TEST_F(ExpandableSegments, AreNotBlamedForWhatFailsWithoutThemToo) {
  EXPECT_THROW(settle_expandable_segments([] { TORCH_CHECK(false, "CUDA error: no kernel image"); }),
               c10::Error);
  set("");
  settle_expandable_segments([&] { calls_++; });
  EXPECT_EQ(calls_, 0) << "off: nothing to find out";
}

}  // namespace
}  // namespace trainer
