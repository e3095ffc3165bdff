// Where the program came from decides how its user gets a LibTorch with CUDA.
#include <gtest/gtest.h>

#include "device/cuda_driver.h"

namespace trainer {
namespace {

TEST(HowToGetCuda, InASourceTreeIsItsSetup) {
  EXPECT_EQ(how_to_get_cuda("/repo/.venv/lib/python3.11/site-packages/torch", true),
            "scripts/setup --full installs one that has it");
}

TEST(HowToGetCuda, AfterAnInstallationByPipIsPip) {
  const std::string advice = how_to_get_cuda("/env/lib/python3.11/site-packages/torch", false);
  EXPECT_TRUE(advice.starts_with("run: /env/bin/python3 -m pip install --force-reinstall 'torch=="))
      << advice;
}

TEST(HowToGetCuda, BesideAnUnpackedLibTorchIsAnother) {
  const std::string advice = how_to_get_cuda("/opt/libtorch", false);
  EXPECT_TRUE(advice.starts_with("set TORCH_DIR to the folder of a LibTorch ")) << advice;
}

TEST(HowToGetNvrtc, IsThePackageOfTheCudaThatLibTorchHas) {
  const char* const torch = "/env/lib/python3.11/site-packages/torch";
  EXPECT_EQ(how_to_get_nvrtc(torch, true, 13000), "scripts/setup --full installs it");
  EXPECT_EQ(how_to_get_nvrtc(torch, false, 13000),
            "run: /env/bin/python3 -m pip install --force-reinstall 'nvidia-cuda-nvrtc==13.0.*'");
  EXPECT_EQ(how_to_get_nvrtc(torch, false, 12080),
            "run: /env/bin/python3 -m pip install --force-reinstall 'nvidia-cuda-nvrtc-cu12==12.8.*'");
  EXPECT_EQ(how_to_get_nvrtc("/opt/libtorch", false, 13000),
            "install libnvrtc of CUDA 13.0 where the system finds it");
}

}  // namespace
}  // namespace trainer
