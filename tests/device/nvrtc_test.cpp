// How NVIDIA's run-time compiler is opened where no CUDA toolkit is installed. It is replaced by a fake, in a
// folder that the loader does not search, as in NVIDIA's packages.
#include "device/nvrtc.h"

#include <gtest/gtest.h>

namespace trainer {
namespace {

constexpr const char* kCompiler = FAKE_NVRTC_DIR "/libnvrtc.so.13";

int compile(const DynamicLibrary& library) {
  return library.call(-1, "nvrtcCompileProgram", static_cast<void*>(nullptr), 0,
                      static_cast<const char**>(nullptr));
}

TEST(Nvrtc, FindsItsBuiltinsInAFolderThatIsNotSearched) {
  ASSERT_NE(compile(DynamicLibrary(kCompiler)), 0) << "the fake finds them by itself";
  EXPECT_EQ(compile(open_nvrtc({"libno-such-nvrtc.so.13", kCompiler})), 0);
}

TEST(Nvrtc, IsTheFirstThatOpens) {
  EXPECT_TRUE(open_nvrtc({FAKE_NVRTC_DIR "/libnvrtc.so.99", kCompiler}).is_open());
  EXPECT_FALSE(open_nvrtc({FAKE_NVRTC_DIR "/libnvrtc.so.99"}).is_open());
  EXPECT_FALSE(open_nvrtc({}).is_open());
}

}  // namespace
}  // namespace trainer
