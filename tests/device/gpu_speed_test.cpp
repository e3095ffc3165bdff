#include "device/gpu_speed.h"

#include <gtest/gtest.h>

namespace trainer {
namespace {

// Products in bf16 (fp16 on Turing) with sums in fp32, without sparsity, as the vendor's data sheets have
// them.
TEST(GpuSpeed, IsThatOfDataSheets) {
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

TEST(GpuSpeed, IsNotKnownWithoutAGpu) {
  EXPECT_EQ(products_per_clock(CudaDevice{}), 0);
  EXPECT_EQ(products_per_clock(c10::Device(c10::kCUDA, 99)), 0);
}

}  // namespace
}  // namespace trainer
