// AdamW's GPU kernel, run on the CPU (support/emulated_gpu.h) and, if there is one, on a GPU, compared with
// the CPU's own update.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/optim/adamw.h"

#include "optim/emulated_adamw.h"
#include "support/compile_kernels.h"
#include "support/gpu.h"
#include "support/long_case.h"

namespace trainer {
namespace {

using test::EmulatedAdamw;

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
    adamw_update({{cpu, update}}, scale, a);
    adamw_update_gpu({{gpu, update}}, copy(scale), b);
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
  out.push_back({at::kBFloat16, at::kBFloat16, at::kFloat, /*master=*/true, 20003});
  return out;
}

TEST(AdamwKernel, GivesTheValuesOfTheCpusLoop) {
  EmulatedAdamw gpu;
  for (const Types& types : all_types()) {
    compare(types, [](const at::Tensor& t) { return t.defined() ? t.clone() : t; });
    EXPECT_EQ(gpu.take_used().size(), 2U);
  }
}

TEST(AdamwKernel, ARehearsalChangesNothing) {
  const EmulatedAdamw gpu;
  const AdamwTensors t{at::ones({8}), at::ones({8}), at::zeros({8}), at::zeros({8}), {}};
  AdamwProgress progress;
  progress.rehearsal = true;
  adamw_update_gpu({{t, {1e-2, 0.9, 0.999, 1e-8, 0.1, 1, 3}}}, at::ones({}), progress);
  EXPECT_TRUE(t.weight.equal(at::ones({8})));
  EXPECT_TRUE(t.exp_avg.equal(at::zeros({8})));
}

TEST(AdamwKernel, InfinitiesAndNanStay) {
  const EmulatedAdamw gpu;
  const AdamwTensors t{at::full({4}, INFINITY, at::kBFloat16),
                       at::zeros({4}, at::kBFloat16),
                       at::full({4}, NAN, at::kBFloat16),
                       at::zeros({4}, at::kBFloat16),
                       {}};
  AdamwProgress progress;
  adamw_update_gpu({{t, {0.0, 0.9, 0.999, 1e-8, 0.0, 1, 3}}}, at::ones({}), progress);
  EXPECT_TRUE(t.exp_avg.isnan().all().item<bool>());
  EXPECT_TRUE(t.weight.isnan().all().item<bool>());
}

TEST(AdamwKernel, IsCompiledByNvrtcForEveryKindOfGpu) {
  TRAINER_LONG_CASE();
  if (!has_nvrtc()) GTEST_SKIP() << "NVIDIA's compiler is not installed";
  const EmulatedAdamw gpu;
  test::expect_compiles(kernel_file("adamw"), gpu);
}

TEST(AdamwKernel, OnAGpuGivesTheValuesOfTheCpusLoop) {
  const std::string why = test::why_no_gpu(kernel_file("adamw"), "Weight=float Gradient=float State=float");
  if (!why.empty()) GTEST_SKIP() << why;
  for (const Types& types : all_types()) compare(types, test::on_gpu);
}

}  // namespace
}  // namespace trainer
