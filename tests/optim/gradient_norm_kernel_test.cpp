// The kernels of the gradients' norm, run on the CPU and, if there is one, on a GPU, compared with fp64.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "optim/gradient_norm.h"
#include "support/compile_kernels.h"
#include "support/emulated_gpu.h"
#include "support/gpu.h"
#include "support/long_case.h"

// clang-format off
#include "optim/gradient_norm.cu"  // after what makes C++ of CUDA
// clang-format on

namespace trainer {

namespace {

class EmulatedNorm : public emulated::Gpu {
 public:
  EmulatedNorm() {
    add("gradient_norm.cu", "", "sum_squares", emulated::Callable<sum_squares>::call);
    add("gradient_norm.cu", "", "finish_norm", emulated::Callable<finish_norm>::call);
  }
};

double norm_in_fp64(const std::vector<at::Tensor>& gradients) {
  double squares = 0;
  for (const at::Tensor& gradient : gradients)
    squares += gradient.to(at::kDouble).square().sum().item<double>();
  return std::sqrt(squares);
}

// Both types, sizes around the blocks' and the packs', one that begins between two packs, one transposed.
std::vector<at::Tensor> many_gradients() {
  at::manual_seed(3);
  std::vector<at::Tensor> gradients;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const int64_t count : {1, 0, 3, 4096, 8192, 8195, 40000})
      gradients.push_back(at::randn({count}).to(type));
    gradients.push_back((at::randn({10001}) * 3).to(type).narrow(0, 1, 10000));
    gradients.push_back(at::randn({50, 30}).to(type).t());
    gradients.push_back(at::empty({0}, type));
  }
  return gradients;
}

TEST(GradientNorm, IsThatOfFp64) {
  EmulatedNorm gpu;
  const std::vector<at::Tensor> gradients = many_gradients();
  const at::Tensor norm = gradient_norm_gpu(gradients);
  EXPECT_EQ(norm.scalar_type(), at::kFloat);
  EXPECT_EQ(norm.dim(), 0);
  EXPECT_NEAR(norm.item<double>() / norm_in_fp64(gradients), 1, 1e-6);
  for (const at::Tensor& gradient : gradients) {
    const double expected = norm_in_fp64({gradient});
    EXPECT_NEAR(gradient_norm_gpu({gradient}).item<double>(), expected, 1e-6 * expected);
  }
  EXPECT_EQ(gpu.take_used().size(), 1 + gradients.size());
}

// Where every sum of a thread is rounded in the same direction.
TEST(GradientNorm, OfEqualElementsIsThatOfFp64) {
  const EmulatedNorm gpu;
  for (const double value : {1.0 / 3, 1e-4, 0.999999}) {
    for (const int64_t offset : {0, 1}) {
      const at::Tensor equal = at::full({100001}, value).narrow(0, offset, 100000);
      EXPECT_NEAR(gradient_norm_gpu({equal}).item<double>() / norm_in_fp64({equal}), 1, 1e-6) << value;
    }
  }
}

TEST(GradientNorm, IsNotFiniteWhereAGradientIsNot) {
  const EmulatedNorm gpu;
  for (const double value : {INFINITY, NAN}) {
    at::Tensor second = at::zeros({9000}, at::kBFloat16);
    second[8999] = value;
    EXPECT_FALSE(std::isfinite(gradient_norm_gpu({at::ones({5}), second}).item<double>()));
  }
}

TEST(GradientNorm, IsCompiledByNvrtcForEveryKindOfGpu) {
  TRAINER_LONG_CASE();
  if (!has_nvrtc()) GTEST_SKIP() << "NVIDIA's compiler is not installed";
  const EmulatedNorm gpu;
  test::expect_compiles(kernel_file("gradient_norm"), gpu);
}

TEST(GradientNorm, OnAGpuIsThatOfFp64AndTheSameEachTime) {
  const std::string why = test::why_no_gpu(kernel_file("gradient_norm"), "");
  if (!why.empty()) GTEST_SKIP() << why;
  std::vector<at::Tensor> gradients = many_gradients();
  gradients.push_back(at::randn({3000, 1000}));
  const double expected = norm_in_fp64(gradients);
  for (at::Tensor& gradient : gradients) gradient = test::on_gpu(gradient);
  const at::Tensor norm = gradient_norm_gpu(gradients);
  EXPECT_NEAR(norm.item<double>() / expected, 1, 1e-6);
  EXPECT_TRUE(norm.equal(gradient_norm_gpu(gradients)));
}

}  // namespace
}  // namespace trainer
