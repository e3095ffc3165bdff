// The GPU kernel of 8-bit AdamW, run on the CPU (support/emulated_gpu.h) and, if there is one, on a GPU,
// compared with the CPU's own update.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/memory/host_allocator.h"
#include "trainer/optim/adamw_8bit.h"

#include "optim/emulated_adamw_8bit.h"
#include "optim/many_coded_tensors.h"
#include "support/compile_kernels.h"
#include "support/gpu.h"
#include "support/long_case.h"
#include "support/planned_bytes.h"
#include "support/started_kernels.h"

namespace trainer {
namespace {

using test::EmulatedAdamw8bit;

at::Tensor clone(const at::Tensor& tensor) { return tensor.clone(); }

AdamwUpdate update_of(int64_t step, uint64_t key, double decay = 0.1) {
  return {1e-2, 0.9, 0.999, 1e-8, decay, step, key};
}

// Weights and gradients of all types, of sizes around those of blocks; some have masters, one begins in the
// middle of 16 bytes, one gradient is transposed.
std::vector<Adamw8bitItem> many_items() {
  at::manual_seed(11);
  std::vector<Adamw8bitItem> items;
  uint64_t key = 0xfedcba9876543210ull;
  for (const at::ScalarType weight : {at::kBFloat16, at::kFloat}) {
    for (const at::ScalarType gradient : {at::kBFloat16, at::kFloat}) {
      for (const int64_t count : {1, 256, 0, 257, 8192, 64, 8193, 20000, 4099}) {
        const int64_t offset = count == 64 ? 1 : 0;
        Adamw8bitTensors t =
            test::coded_tensors(at::randn({count + offset}).to(weight).narrow(0, offset, count),
                                (at::randn({count}) * at::randn({count}).mul(3).exp()).to(gradient));
        if (weight == at::kBFloat16 && count > 8192) t.master = t.weight.to(at::kFloat);
        key = key * 31 + 7;
        items.push_back({t, update_of(1, key, count % 2 == 0 ? 0.1 : 0.0)});
      }
    }
  }
  Adamw8bitTensors& turned = items[4].tensors;
  turned = test::coded_tensors(turned.weight.view({64, 128}), at::randn({128, 64}).to(at::kBFloat16).t());
  return items;
}

template <class Copy>
std::vector<Adamw8bitItem> copies(std::vector<Adamw8bitItem> items, const Copy& copy) {
  for (Adamw8bitItem& item : items) {
    const at::Tensor weight = item.tensors.weight;
    const bool slice = weight.storage_offset() > 0;
    item.tensors = test::copy_of(item.tensors, copy);
    // A slice's copy begins where new memory does, so the slice of a copy is taken.
    if (slice) item.tensors.weight = copy(at::constant_pad_nd(weight, {1, 0})).narrow(0, 1, weight.numel());
    item.tensors.gradient = copy(item.tensors.gradient);
  }
  return items;
}

void update_on_gpu(const std::vector<Adamw8bitItem>& items, AdamwProgress& progress) {
  const at::Tensor scale = at::full({}, 0.5, at::TensorOptions(items.front().tensors.weight.device()));
  adamw_8bit_update_gpu(items, scale, progress);
}

void expect_same_bits(const std::vector<Adamw8bitItem>& ours, const std::vector<Adamw8bitItem>& expected) {
  for (size_t i = 0; i < ours.size(); i++) {
    const auto a = test::members(ours[i].tensors), b = test::members(expected[i].tensors);
    for (size_t k = 0; k < a.size(); k++) EXPECT_TRUE(a[k].equal(b[k])) << i << " " << k;
  }
}

// Three updates of all tensors at once.
template <class Copy>
void expect_the_values_of_the_loop(const Copy& copy) {
  std::vector<Adamw8bitItem> cpu = copies(many_items(), clone), gpu = copies(cpu, copy);
  for (int64_t step = 1; step <= 3; step++) {
    for (std::vector<Adamw8bitItem>* items : {&cpu, &gpu}) {
      for (Adamw8bitItem& item : *items) item.update.step = step;
    }
    AdamwProgress a, b;
    adamw_8bit_update(cpu, at::full({}, 0.5), a);
    update_on_gpu(gpu, b);
    EXPECT_EQ(b.next, gpu.size());
  }
  for (size_t i = 0; i < cpu.size(); i++) test::expect_close(gpu[i].tensors, cpu[i].tensors);
}

template <class Copy>
void expect_the_bits_of_each_alone(const Copy& copy) {
  const std::vector<Adamw8bitItem> start = many_items(), together = copies(start, copy),
                                   alone = copies(start, copy);
  AdamwProgress progress;
  update_on_gpu(together, progress);
  for (const Adamw8bitItem& item : alone) {
    AdamwProgress of_one;
    update_on_gpu({item}, of_one);
  }
  expect_same_bits(together, alone);
}

TEST(Adamw8bitKernel, GivesTheValuesOfTheCpusLoop) {
  const EmulatedAdamw8bit gpu;
  expect_the_values_of_the_loop(clone);
}

TEST(Adamw8bitKernel, TensorsHaveTheBitsThatEachHasAlone) {
  const EmulatedAdamw8bit gpu;
  expect_the_bits_of_each_alone(clone);
}

TEST(Adamw8bitKernel, StartsOnceForAllTensorsOfTheSameTypes) {
  test::StartedKernels kernels;
  const std::vector<Adamw8bitItem> items = copies(many_items(), clone);
  AdamwProgress progress;
  update_on_gpu(items, progress);
  EXPECT_EQ(kernels.take_started().size(), 4U);
}

TEST(Adamw8bitKernel, ARehearsalChangesNothing) {
  const EmulatedAdamw8bit gpu;
  const std::vector<Adamw8bitItem> start = many_items(), items = copies(start, clone);
  AdamwProgress progress;
  progress.rehearsal = true;
  update_on_gpu(items, progress);
  expect_same_bits(items, start);
}

// Fails each allocation of an update in turn and repeats the update. `check` sees what was written by then.
template <class Check>
void fail_each_allocation(const Check& check) {
  install_host_allocator();
  std::vector<Adamw8bitItem> start = many_items();
  start.erase(start.begin() + 9, start.begin() + 32);  // of two kinds
  const std::vector<Adamw8bitItem> expected = copies(start, clone);
  AdamwProgress whole;
  update_on_gpu(expected, whole);
  int64_t failures = 0;
  for (bool failed = true; failed; failures += failed ? 1 : 0) {
    const std::vector<Adamw8bitItem> items = copies(start, clone);
    const at::Tensor scale = at::full({}, 0.5);
    AdamwProgress progress;
    fail_host_allocation(failures + 1);
    failed = false;
    try {
      adamw_8bit_update_gpu(items, scale, progress);
    } catch (const c10::OutOfMemoryError&) {
      failed = true;
    }
    fail_host_allocation(0);
    if (failed) {
      check(items, start, progress);
      adamw_8bit_update_gpu(items, scale, progress);
    }
    expect_same_bits(items, expected);
  }
  EXPECT_GT(failures, 4) << "the copied gradient, two tables, and their bytes on the host";
}

TEST(Adamw8bitKernel, AnUpdateOutOfMemoryHasWrittenNothingAndIsRepeated) {
  const EmulatedAdamw8bit gpu;
  fail_each_allocation([](const auto& items, const auto& start, const auto& progress) {
    EXPECT_EQ(progress.next, 0U);
    expect_same_bits(items, start);
  });
}

TEST(Adamw8bitKernel, APlanCountsItsTables) {
  const auto some = [] {
    const auto zeros = [](at::IntArrayRef shape) { return at::zeros(shape, at::kMeta); };
    return Adamw8bitItem{test::coded_tensors(zeros({16, 64}), zeros({16, 64})), update_of(1, 3)};
  };
  const std::vector<Adamw8bitItem> items{some(), some()};
  const at::Tensor scale = at::ones({}, at::kMeta);
  const std::vector<int64_t> bytes = planned([&] {
    AdamwProgress progress, rehearsal{.rehearsal = true};
    adamw_8bit_update(items, scale, progress);
    adamw_8bit_update(items, scale, rehearsal);
  });
  EXPECT_EQ(bytes, (std::vector<int64_t>{2 * 104, 4096, 2 * 104, 4096}));
}

TEST(Adamw8bitKernel, IsCompiledByNvrtcForEveryKindOfGpu) {
  TRAINER_LONG_CASE();
  if (!has_nvrtc()) GTEST_SKIP() << "NVIDIA's compiler is not installed";
  const EmulatedAdamw8bit gpu;
  test::expect_compiles(kernel_file("adamw_8bit"), gpu);
}

TEST(Adamw8bitKernel, OnAGpuGivesTheValuesOfTheCpusLoop) {
  const std::string why = test::why_no_gpu(kernel_file("adamw_8bit"), "Weight=float Gradient=float");
  if (!why.empty()) GTEST_SKIP() << why;
  expect_the_values_of_the_loop(test::on_gpu);
  expect_the_bits_of_each_alone(test::on_gpu);
}

}  // namespace
}  // namespace trainer
