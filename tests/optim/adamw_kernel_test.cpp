// AdamW's GPU kernel, run on the CPU (support/emulated_gpu.h) and, if there is one, on a GPU, compared with
// the CPU's own update.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/device/kernels.h"
#include "trainer/optim/adamw.h"

#include "support/compile_kernels.h"
#include "support/emulated_gpu.h"
#include "support/gpu.h"

namespace float_float_float {
using Weight = float;
using Gradient = float;
using State = float;
constexpr int kWidth = 4;
#include "optim/kernels_of_optim.h"
}  // namespace float_float_float
namespace float_float_bf16 {
using Weight = float;
using Gradient = float;
using State = bf16;
constexpr int kWidth = 4;
#include "optim/kernels_of_optim.h"
}  // namespace float_float_bf16
namespace float_bf16_float {
using Weight = float;
using Gradient = bf16;
using State = float;
constexpr int kWidth = 4;
#include "optim/kernels_of_optim.h"
}  // namespace float_bf16_float
namespace float_bf16_bf16 {
using Weight = float;
using Gradient = bf16;
using State = bf16;
constexpr int kWidth = 4;
#include "optim/kernels_of_optim.h"
}  // namespace float_bf16_bf16
namespace bf16_float_float {
using Weight = bf16;
using Gradient = float;
using State = float;
constexpr int kWidth = 4;
#include "optim/kernels_of_optim.h"
}  // namespace bf16_float_float
namespace bf16_float_bf16 {
using Weight = bf16;
using Gradient = float;
using State = bf16;
constexpr int kWidth = 4;
#include "optim/kernels_of_optim.h"
}  // namespace bf16_float_bf16
namespace bf16_bf16_float {
using Weight = bf16;
using Gradient = bf16;
using State = float;
constexpr int kWidth = 4;
#include "optim/kernels_of_optim.h"
}  // namespace bf16_bf16_float
namespace bf16_bf16_bf16 {
using Weight = bf16;
using Gradient = bf16;
using State = bf16;
constexpr int kWidth = 4;
#include "optim/kernels_of_optim.h"
}  // namespace bf16_bf16_bf16
namespace bf16_bf16_float_1 {
using Weight = bf16;
using Gradient = bf16;
using State = float;
constexpr int kWidth = 1;
#include "optim/kernels_of_optim.h"
}  // namespace bf16_bf16_float_1

namespace trainer {

namespace kernel_files {
extern const KernelFile adamw;
}

namespace {

class EmulatedGpu : public emulated::Gpu {
 public:
  EmulatedGpu() {
    float_float_float::add_to(*this, "Weight=float Gradient=float State=float kWidth=4");
    float_float_bf16::add_to(*this, "Weight=float Gradient=float State=bf16 kWidth=4");
    float_bf16_float::add_to(*this, "Weight=float Gradient=bf16 State=float kWidth=4");
    float_bf16_bf16::add_to(*this, "Weight=float Gradient=bf16 State=bf16 kWidth=4");
    bf16_float_float::add_to(*this, "Weight=bf16 Gradient=float State=float kWidth=4");
    bf16_float_bf16::add_to(*this, "Weight=bf16 Gradient=float State=bf16 kWidth=4");
    bf16_bf16_float::add_to(*this, "Weight=bf16 Gradient=bf16 State=float kWidth=4");
    bf16_bf16_bf16::add_to(*this, "Weight=bf16 Gradient=bf16 State=bf16 kWidth=4");
    bf16_bf16_float_1::add_to(*this, "Weight=bf16 Gradient=bf16 State=float kWidth=1");
  }
};

struct Types {
  at::ScalarType weight, gradient, state;
  bool master = false;
  int64_t count = 5000;
};

std::vector<at::Tensor> members(const AdamwTensors& t) {
  std::vector<at::Tensor> out{t.weight, t.exp_avg, t.exp_avg_sq};
  if (t.master.defined()) out.push_back(t.master);
  return out;
}

// Two updates by the CPU's loop and two by `update` on copies that `copy` makes.
template <class Copy>
void compare(const Types& types, const Copy& copy) {
  at::manual_seed(5);
  AdamwTensors cpu{at::randn({types.count}).to(types.weight),
                   at::Tensor(),
                   at::zeros({types.count}, types.state),
                   at::zeros({types.count}, types.state),
                   {}};
  if (types.master) cpu.master = cpu.weight.to(at::kFloat);
  AdamwTensors gpu{copy(cpu.weight), at::Tensor(), copy(cpu.exp_avg), copy(cpu.exp_avg_sq), copy(cpu.master)};
  for (int64_t step = 1; step <= 2; step++) {
    cpu.gradient = at::randn({types.count}).to(types.gradient);
    gpu.gradient = copy(cpu.gradient);
    const at::Tensor scale = at::full({}, 0.5);
    const AdamwUpdate update{
        1e-2, 0.9, 0.999, 1e-8, 0.1, step, 0xfedcba9876543210ull + static_cast<uint64_t>(step)};
    AdamwProgress a, b;
    adamw_update(cpu, scale, update, a);
    adamw_update_gpu(gpu, copy(scale), update, b);
  }
  const std::vector<at::Tensor> ours = members(gpu), expected = members(cpu);
  for (size_t i = 0; i < ours.size(); i++) {
    const at::Tensor one = ours[i].cpu();
    EXPECT_LE((one - expected[i]).norm().item<double>(),
              (one.scalar_type() == at::kFloat ? 1e-6 : 1e-4) * expected[i].norm().item<double>())
        << i;
    // A product and a sum are one rounding or two. Where that decides how bf16 is rounded it is one of 2^16.
    if (one.scalar_type() == at::kBFloat16) {
      EXPECT_LE(one.ne(expected[i]).sum().item<int64_t>(), types.count / 500) << i;
    }
  }
}

std::vector<Types> all_types() {
  std::vector<Types> out;
  for (const at::ScalarType weight : {at::kFloat, at::kBFloat16}) {
    for (const at::ScalarType gradient : {at::kFloat, at::kBFloat16}) {
      for (const at::ScalarType state : {at::kFloat, at::kBFloat16}) out.push_back({weight, gradient, state});
    }
  }
  out.push_back({at::kBFloat16, at::kBFloat16, at::kFloat, /*master=*/true});
  out.push_back({at::kBFloat16, at::kBFloat16, at::kFloat, /*master=*/true, 4999});
  return out;
}

TEST(AdamwKernel, GivesTheValuesOfTheCpusLoop) {
  EmulatedGpu gpu;
  for (const Types& types : all_types()) {
    compare(types, [](const at::Tensor& t) { return t.defined() ? t.clone() : t; });
    EXPECT_EQ(gpu.take_used().size(), 2U);
  }
}

TEST(AdamwKernel, ARehearsalChangesNothing) {
  const EmulatedGpu gpu;
  const AdamwTensors t{at::ones({8}), at::ones({8}), at::zeros({8}), at::zeros({8}), {}};
  AdamwProgress progress;
  progress.rehearsal = true;
  adamw_update_gpu(t, at::ones({}), {1e-2, 0.9, 0.999, 1e-8, 0.1, 1, 3}, progress);
  EXPECT_TRUE(t.weight.equal(at::ones({8})));
  EXPECT_TRUE(t.exp_avg.equal(at::zeros({8})));
}

TEST(AdamwKernel, InfinitiesAndNanStay) {
  const EmulatedGpu gpu;
  const AdamwTensors t{at::full({4}, INFINITY, at::kBFloat16),
                       at::zeros({4}, at::kBFloat16),
                       at::full({4}, NAN, at::kBFloat16),
                       at::zeros({4}, at::kBFloat16),
                       {}};
  AdamwProgress progress;
  adamw_update_gpu(t, at::ones({}), {0.0, 0.9, 0.999, 1e-8, 0.0, 1, 3}, progress);
  EXPECT_TRUE(t.exp_avg.isnan().all().item<bool>());
  EXPECT_TRUE(t.weight.isnan().all().item<bool>());
}

TEST(AdamwKernel, IsCompiledByNvrtcForThreeKindsOfGpu) {
  if (!why_no_nvrtc().empty()) GTEST_SKIP() << why_no_nvrtc();
  const EmulatedGpu gpu;
  test::expect_compiles(kernel_files::adamw, gpu);
}

TEST(AdamwKernel, OnAGpuGivesTheValuesOfTheCpusLoop) {
  const std::string why =
      test::why_no_gpu(kernel_files::adamw, "Weight=float Gradient=float State=float kWidth=4");
  if (!why.empty()) GTEST_SKIP() << why;
  for (const Types& types : all_types()) compare(types, test::on_gpu);
}

}  // namespace
}  // namespace trainer
