// How many GPUs a run could use, on a machine whose driver is a stand-in with three.
#include "cli/count_gpus.h"

#include <cstdlib>
#include <dlfcn.h>

#include <gtest/gtest.h>

namespace trainer::cli {
namespace {

class CountGpus : public testing::Test {
 protected:
  void SetUp() override {
    // Loaded once, it is found by its name.
    ASSERT_NE(dlopen(FAKE_NVIDIA_DIR "/libnvidia-ml.so.1", RTLD_LAZY), nullptr) << dlerror();
    ::unsetenv("CUDA_VISIBLE_DEVICES");
  }
  void TearDown() override {
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    ::unsetenv("FAKE_NVML_NO_MIG");
  }

  static int64_t usable_with(const char* list) {
    ::setenv("CUDA_VISIBLE_DEVICES", list, 1);
    return count_gpus().usable;
  }
};

TEST_F(CountGpus, WithoutAListAllCount) {
  EXPECT_EQ(count_gpus().usable, 3);
  EXPECT_EQ(count_gpus().text, "this machine shows 3 GPUs");
}

TEST_F(CountGpus, AListHidesWhatItDoesNotName) {
  EXPECT_EQ(usable_with("0,2"), 2);
  EXPECT_EQ(count_gpus().text, "CUDA_VISIBLE_DEVICES=0,2 leaves 2 of 3 GPUs");
  EXPECT_EQ(usable_with(""), 0);
  EXPECT_EQ(usable_with("-1"), 0);
  EXPECT_EQ(usable_with("NoDevFiles"), 0);
  EXPECT_EQ(usable_with("GPU-02222222,MIG-01111111-1111"), 2);
}

// As CUDA does.
TEST_F(CountGpus, AListEndsAtTheFirstEntryThatNamesNoGpu) {
  EXPECT_EQ(usable_with("1,3,0"), 1);
  EXPECT_EQ(usable_with("2,x,0"), 1);
}

TEST_F(CountGpus, TheFreestComeFirst) {
  ::setenv("FAKE_NVML_NO_MIG", "1", 1);  // then the three have 0, 7 and 2 GB free
  EXPECT_EQ(freest_gpus(2),
            "GPU-02222222-2222-2222-2222-222222222222,GPU-03333333-3333-3333-3333-333333333333");
}

TEST_F(CountGpus, AListOfTheUsersIsKept) {
  ::setenv("FAKE_NVML_NO_MIG", "1", 1);
  ::setenv("CUDA_VISIBLE_DEVICES", "0,1", 1);
  EXPECT_EQ(freest_gpus(1), "");
}

TEST_F(CountGpus, AGpuThatIsDividedLeavesTheChoiceToCuda) { EXPECT_EQ(freest_gpus(2), ""); }

}  // namespace
}  // namespace trainer::cli
