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

}  // namespace
}  // namespace trainer
