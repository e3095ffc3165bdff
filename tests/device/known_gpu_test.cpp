#include "device/known_gpu.h"

#include <gtest/gtest.h>

namespace trainer {
namespace {

// Products in bf16 (fp16 on Turing) with sums in fp32, without sparsity, as the vendor's data sheets have
// them.
TEST(KnownGpu, MultipliesAsFastAsDataSheetsSay) {
  struct Card {
    const char* name;
    int major, minor, processors;
    double gigahertz, teraflops;
  };
  for (const Card& card : {Card{"T4", 7, 5, 40, 1.59, 65}, Card{"A100", 8, 0, 108, 1.41, 312},
                           Card{"RTX 3090", 8, 6, 82, 1.695, 71}, Card{"RTX 4090", 8, 9, 128, 2.52, 165},
                           Card{"H100 SXM", 9, 0, 132, 1.83, 989}, Card{"B200", 10, 0, 148, 1.85, 2250},
                           Card{"RTX 5090", 12, 0, 170, 2.407, 209.5}}) {
    CudaDevice gpu;
    gpu.major = card.major;
    gpu.minor = card.minor;
    gpu.processors = card.processors;
    const auto products = static_cast<double>(products_per_clock(gpu));
    EXPECT_NEAR(2e-3 * products * card.gigahertz, card.teraflops, 0.02 * card.teraflops) << card.name;
  }
}

TEST(KnownGpu, HasUnitsForFp8FromAdaOn) {
  const auto has = [](int major, int minor) {
    CudaDevice gpu;
    gpu.major = major;
    gpu.minor = minor;
    return has_fp8_units(gpu);
  };
  EXPECT_FALSE(has(7, 5) || has(8, 0) || has(8, 6));
  EXPECT_TRUE(has(8, 9) && has(9, 0) && has(10, 0) && has(12, 0));
}

TEST(KnownGpu, IsNoneThatIsNotHere) { EXPECT_EQ(known_gpu(c10::Device(c10::kCUDA, 99)), nullptr); }

}  // namespace
}  // namespace trainer
