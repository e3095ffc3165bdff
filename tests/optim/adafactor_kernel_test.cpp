// Adafactor's GPU kernels, run on the CPU (support/emulated_gpu.h) and, if there is one, on a GPU, compared
// with the CPU's own update.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/memory/host_allocator.h"
#include "trainer/optim/adafactor.h"

#include "optim/adafactor_items.h"
#include "optim/emulated_adafactor.h"
#include "support/compile_kernels.h"
#include "support/gpu.h"
#include "support/long_case.h"

namespace trainer {
namespace {

using test::adafactor_tensors;
using test::adafactor_types;
using test::adafactor_update_of;
using test::AdafactorTypes;
using test::cloned;
using test::EmulatedAdafactor;

// Sizes around those of a tile, a pack and a strip; with several matrices; without elements.
const std::vector<std::vector<int64_t>> kShapes{{270, 36}, {3, 1030}, {2, 17, 33}, {2100},
                                                {5},       {0, 8},    {1, 1}};

std::vector<AdafactorItem> items_of(const AdafactorTypes& types) {
  at::manual_seed(5);
  std::vector<AdafactorItem> items;
  for (const std::vector<int64_t>& shape : kShapes) {
    AdafactorUpdate update = adafactor_update_of(0xfedcba9876543210ull + items.size());
    update.scale_parameter = items.size() % 2 == 0;
    items.push_back({adafactor_tensors(shape, types), update});
  }
  // A transposed gradient has to be copied first.
  items[0].tensors.gradient = at::randn({36, 270}).to(types.gradient).t();
  return items;
}

template <class Copy>
std::vector<AdafactorItem> copies(std::vector<AdafactorItem> items, const Copy& copy) {
  for (AdafactorItem& item : items) item.tensors = test::copied(item.tensors, copy);
  return items;
}
at::Tensor clone(const at::Tensor& tensor) { return tensor.defined() ? tensor.clone() : tensor; }

void expect_near(const std::vector<AdafactorItem>& ours, const std::vector<AdafactorItem>& expected) {
  for (size_t n = 0; n < ours.size(); n++) {
    const std::vector<at::Tensor> a = test::written(ours[n].tensors), b = test::written(expected[n].tensors);
    for (size_t i = 0; i < a.size() && a[i].numel() > 0; i++) {
      const bool fp32 = a[i].scalar_type() == at::kFloat;
      EXPECT_LE(test::distance(a[i], b[i]), fp32 ? 1e-6 : 1e-3) << "tensor " << n << ", " << i;
      if (!fp32) {
        EXPECT_LE(a[i].cpu().ne(b[i]).to(at::kDouble).mean().item<double>(), 0.01);
      }
    }
  }
}

template <class Copy>
void expect_the_values_of_the_cpu(const AdafactorTypes& types, const Copy& copy) {
  const std::vector<AdafactorItem> cpu = items_of(types), gpu = copies(cpu, copy);
  const at::Tensor scale = at::full({}, 0.5);
  AdafactorProgress of_cpu, of_gpu;
  adafactor_update(cpu, scale, of_cpu);
  adafactor_update_gpu(gpu, copy(scale), of_gpu);
  EXPECT_EQ(of_gpu.next, cpu.size());
  expect_near(gpu, cpu);
}

TEST(AdafactorKernel, GivesTheValuesOfTheCpusLoop) {
  EmulatedAdafactor gpu;
  for (const AdafactorTypes& types : adafactor_types()) {
    expect_the_values_of_the_cpu(types, clone);
    EXPECT_EQ(gpu.take_used().size(), 1U);
  }
}

TEST(AdafactorKernel, GivesEachTensorTheBitsThatItHasAlone) {
  const EmulatedAdafactor gpu;
  const std::vector<AdafactorItem> together = items_of({at::kBFloat16, at::kBFloat16, at::kBFloat16}),
                                   alone = copies(together, clone);
  const at::Tensor scale = at::full({}, 0.5);
  AdafactorProgress progress;
  adafactor_update_gpu(together, scale, progress);
  for (size_t i = 0; i < alone.size(); i++) {
    AdafactorProgress of_one;
    adafactor_update_gpu({alone[i]}, scale, of_one);
    EXPECT_TRUE(test::same_bits(together[i].tensors, alone[i].tensors)) << i;
  }
}

TEST(AdafactorKernel, ARehearsalAndAnUpdateOutOfMemoryWriteNothing) {
  install_host_allocator();
  const EmulatedAdafactor gpu;
  const std::vector<AdafactorItem> start = items_of({});
  const at::Tensor scale = at::full({}, 0.5);
  const auto expect_unchanged = [&](const std::vector<AdafactorItem>& items) {
    for (size_t i = 0; i < items.size(); i++)
      EXPECT_TRUE(test::same_bits(items[i].tensors, start[i].tensors)) << i;
  };
  const std::vector<AdafactorItem> rehearsed = copies(start, clone);
  AdafactorProgress rehearsal;
  rehearsal.rehearsal = true;
  adafactor_update_gpu(rehearsed, scale, rehearsal);
  expect_unchanged(rehearsed);
  int64_t failures = 0;
  for (bool failed = true; failed; failures += failed ? 1 : 0) {
    const std::vector<AdafactorItem> items = copies(start, clone);
    AdafactorProgress progress;
    fail_host_allocation(failures + 1);
    failed = false;
    try {
      adafactor_update_gpu(items, scale, progress);
    } catch (const c10::OutOfMemoryError&) {
      failed = true;
    }
    fail_host_allocation(0);
    if (failed) expect_unchanged(items);
  }
  EXPECT_GT(failures, 3) << "the copied gradient, temporary memory, the table, and its bytes on the host";
}

TEST(AdafactorKernel, IsCompiledByNvrtcForEveryKindOfGpu) {
  TRAINER_LONG_CASE();
  if (!has_nvrtc()) GTEST_SKIP() << "NVIDIA's compiler is not installed";
  const EmulatedAdafactor gpu;
  test::expect_compiles(kernel_file("adafactor"), gpu);
}

TEST(AdafactorKernel, OnAGpuGivesTheValuesOfTheCpusLoop) {
  const std::string why =
      test::why_no_gpu(kernel_file("adafactor"), "Weight=float Gradient=float State=float");
  if (!why.empty()) GTEST_SKIP() << why;
  for (const AdafactorTypes& types : adafactor_types()) expect_the_values_of_the_cpu(types, test::on_gpu);
}

}  // namespace
}  // namespace trainer
