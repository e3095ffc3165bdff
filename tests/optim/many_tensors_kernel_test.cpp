// One launch of AdamW's kernel updates many tensors, each as if it were alone.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/memory/host_allocator.h"
#include "trainer/optim/adamw.h"

#include "optim/emulated_adamw.h"
#include "support/gpu.h"

namespace trainer {
namespace {

using test::EmulatedAdamw;

// Begins `offset` elements after a multiple of 16 bytes.
at::Tensor normal_at(int64_t offset, int64_t count, at::ScalarType type) {
  return at::randn({count + offset}).to(type).narrow(0, offset, count);
}

// Weights of two types, of sizes around the blocks' and the packs', with and without decay and masters.
std::vector<AdamwItem> many_items() {
  at::manual_seed(11);
  std::vector<AdamwItem> items;
  uint64_t key = 0xfedcba9876543210ull;
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
    for (const int64_t count : {1, 0, 3, 8192, 64, 8193, 20000, 0, 4099}) {
      const int64_t offset = count == 64 ? 1 : 0;
      AdamwTensors t{normal_at(offset, count, type), normal_at(0, count, type), normal_at(0, count, type),
                     normal_at(0, count, type).square_(), at::Tensor()};
      if (type == at::kBFloat16 && count > 8192) t.master = t.weight.to(at::kFloat);
      key = key * 31 + 7;
      items.push_back({t, {1e-2, 0.9, 0.999, 1e-8, count % 2 == 0 ? 0.1 : 0.0, 3, key}});
    }
  }
  // A transposed gradient has to be copied first.
  items[3].tensors.gradient = at::randn({128, 64}).to(at::kBFloat16).t();
  for (at::Tensor* tensor :
       {&items[3].tensors.weight, &items[3].tensors.exp_avg, &items[3].tensors.exp_avg_sq}) {
    *tensor = tensor->view({64, 128});
  }
  return items;
}

template <class Copy>
std::vector<AdamwItem> copies(std::vector<AdamwItem> items, const Copy& copy) {
  for (AdamwItem& item : items) {
    AdamwTensors& t = item.tensors;
    // A slice's copy begins where new memory does, so the slice of a copy is taken.
    const bool slice = t.weight.storage_offset() > 0;
    t.weight =
        slice ? copy(at::constant_pad_nd(t.weight, {1, 0})).narrow(0, 1, t.weight.numel()) : copy(t.weight);
    for (at::Tensor* tensor : {&t.gradient, &t.exp_avg, &t.exp_avg_sq, &t.master}) *tensor = copy(*tensor);
  }
  return items;
}
at::Tensor clone(const at::Tensor& tensor) { return tensor.defined() ? tensor.clone() : tensor; }

void update_all(const std::vector<AdamwItem>& items, AdamwProgress& progress) {
  const at::Tensor scale = at::full({}, 0.5, at::TensorOptions(items.front().tensors.weight.device()));
  adamw_update_gpu(items, scale, progress);
}

void expect_same_values(const std::vector<AdamwItem>& ours, const std::vector<AdamwItem>& expected) {
  for (size_t i = 0; i < ours.size(); i++) {
    const AdamwTensors &a = ours[i].tensors, &b = expected[i].tensors;
    EXPECT_TRUE(a.weight.equal(b.weight)) << i;
    EXPECT_TRUE(a.exp_avg.equal(b.exp_avg)) << i;
    EXPECT_TRUE(a.exp_avg_sq.equal(b.exp_avg_sq)) << i;
    if (a.master.defined()) {
      EXPECT_TRUE(a.master.equal(b.master)) << i;
    }
  }
}

template <class Copy>
void expect_the_bits_of_each_alone(const Copy& copy) {
  const std::vector<AdamwItem> start = many_items(), together = copies(start, copy),
                               alone = copies(start, copy);
  AdamwProgress progress;
  update_all(together, progress);
  EXPECT_EQ(progress.next, start.size());
  for (const AdamwItem& item : alone) {
    AdamwProgress of_one;
    update_all({item}, of_one);
  }
  expect_same_values(together, alone);
  EXPECT_FALSE(together.back().tensors.weight.cpu().equal(start.back().tensors.weight));
}

TEST(ManyTensors, HaveTheBitsThatEachHasAlone) {
  const EmulatedAdamw gpu;
  expect_the_bits_of_each_alone(clone);
}

TEST(ManyTensors, HaveTheValuesOfTheCpusLoop) {
  const EmulatedAdamw gpu;
  const std::vector<AdamwItem> start = many_items(), ours = copies(start, clone), cpu = copies(start, clone);
  AdamwProgress of_ours, of_cpu;
  update_all(ours, of_ours);
  adamw_update(cpu, at::full({}, 0.5), of_cpu);
  for (size_t i = 0; i < ours.size(); i++) {
    const at::Tensor &a = ours[i].tensors.weight, &b = cpu[i].tensors.weight;
    EXPECT_LE((a - b).norm().item<double>(),
              (a.scalar_type() == at::kFloat ? 1e-6 : 1e-4) * b.norm().item<double>())
        << i;
  }
}

// Fails each allocation of an update in turn and repeats the update. `check` sees what was written by then.
// Returns the number of allocations.
template <class Check>
int64_t fail_each_allocation(const Check& check) {
  install_host_allocator();
  const std::vector<AdamwItem> start = many_items(), expected = copies(start, clone);
  AdamwProgress whole;
  update_all(expected, whole);
  int64_t failures = 0;
  for (bool failed = true; failed; failures += failed ? 1 : 0) {
    const std::vector<AdamwItem> items = copies(start, clone);
    const at::Tensor scale = at::full({}, 0.5);
    AdamwProgress progress;
    fail_host_allocation(failures + 1);
    failed = false;
    try {
      adamw_update_gpu(items, scale, progress);
    } catch (const c10::OutOfMemoryError&) {
      failed = true;
    }
    fail_host_allocation(0);
    if (failed) {
      check(items, start, progress);
      adamw_update_gpu(items, scale, progress);
    }
    expect_same_values(items, expected);
  }
  return failures;
}

TEST(ManyTensors, AnUpdateOutOfMemoryHasWrittenNothingAndIsRepeated) {
  const EmulatedAdamw gpu;
  const int64_t failures =
      fail_each_allocation([](const auto& items, const auto& start, const auto& progress) {
        EXPECT_EQ(progress.next, 0U);
        expect_same_values(items, start);
      });
  EXPECT_GT(failures, 2) << "the copied gradient, the table, and its bytes on the host";
}

TEST(ManyTensors, OnAGpuHaveTheBitsThatEachHasAlone) {
  const std::string why = test::why_no_gpu(kernel_file("adamw"), "Weight=float Gradient=float State=float");
  if (!why.empty()) GTEST_SKIP() << why;
  expect_the_bits_of_each_alone(test::on_gpu);
}

}  // namespace
}  // namespace trainer
