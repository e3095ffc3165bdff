// AdamW on bf16: stochastic rounding keeps what plain rounding loses, and is a pure function of its key.
#include "trainer/optim/adamw.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/memory/host_allocator.h"

#include "support/reference_updates.h"

namespace trainer {
namespace {

AdamwUpdate update_with(double learning_rate, uint64_t key) {
  return {learning_rate, 0.9, 0.999, 1e-8, 0.0, 1, key};
}

AdamwTensors tensors(int64_t n, at::ScalarType weight, at::ScalarType state) {
  return {at::ones({n}, weight), at::ones({n}, weight), at::zeros({n}, state), at::zeros({n}, state),
          at::Tensor()};
}

void run(const AdamwTensors& t, const AdamwUpdate& update, double scale = 1.0) {
  AdamwProgress progress;
  adamw_update({{t, update}}, at::full({}, scale), progress);
}

TEST(Adamw, StochasticRoundingIsRightOnAverageWhereTheUpdateIsBelowOneStep) {
  // 1 - 1e-4 lies between bf16's 0.99609375 and 1: plain rounding would leave every weight at 1.
  constexpr int64_t n = 200000;
  AdamwTensors t = tensors(n, at::kBFloat16, at::kFloat);
  run(t, update_with(1e-4, 5));
  const double mean = t.weight.to(at::kDouble).mean().item<double>();
  EXPECT_NEAR(mean, 1 - 1e-4, 2e-5);  // the standard error of the mean is 1.4e-6
}

TEST(Adamw, RoundingDependsOnTheKeyAndOnNothingElse) {
  AdamwTensors a = tensors(4096, at::kBFloat16, at::kBFloat16),
               b = tensors(4096, at::kBFloat16, at::kBFloat16),
               c = tensors(4096, at::kBFloat16, at::kBFloat16);
  run(a, update_with(1e-3, 1));
  run(b, update_with(1e-3, 1));
  run(c, update_with(1e-3, 2));
  EXPECT_TRUE(a.weight.equal(b.weight));
  EXPECT_FALSE(a.weight.equal(c.weight));
}

TEST(Adamw, Bf16SecondMomentsDecayWhenGradientsStop) {
  // With plain rounding 0.999 v rounds back to v, for ever.
  AdamwTensors t = tensors(20000, at::kFloat, at::kBFloat16);
  t.exp_avg_sq.fill_(1.0);
  t.gradient.zero_();
  for (int64_t step = 0; step < 1000; step++) {
    AdamwUpdate update = update_with(0.0, static_cast<uint64_t>(step));
    run(t, update);
  }
  EXPECT_NEAR(t.exp_avg_sq.to(at::kDouble).mean().item<double>(), std::pow(0.999, 1000), 0.01);
}

TEST(Adamw, MasterWeightsCarryWhatTheBf16WeightCannot) {
  AdamwTensors t = tensors(16, at::kBFloat16, at::kFloat);
  t.master = at::ones({16});
  run(t, update_with(1e-4, 0));
  EXPECT_NEAR(t.master[3].item<double>(), 1 - 1e-4, 1e-7);
  EXPECT_EQ(t.weight[3].item<double>(), 1.0);
}

TEST(Adamw, LibTorchsOperatorsGiveTheValuesOfTheKernel) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    AdamwTensors kernel = tensors(5000, type, type);
    kernel.weight.normal_();
    kernel.gradient.normal_();
    AdamwTensors operators{kernel.weight.clone(),
                           kernel.gradient.clone(),
                           kernel.exp_avg.clone(),
                           kernel.exp_avg_sq.clone(),
                           {}};
    for (int64_t step = 1; step <= 3; step++) {
      const AdamwUpdate update{
          1e-2, 0.9, 0.999, 1e-8, 0.1, step, 0xfedcba9876543210ull + static_cast<uint64_t>(step)};
      run(kernel, update, 0.5);
      reference::adamw(operators, 0.5, update);
    }
    // fp32 sums differ in their last bit; where that decides a rounding to bf16, by one step of bf16
    const double tolerance = type == at::kFloat ? 1e-6 : 1e-3;
    EXPECT_LE((kernel.weight - operators.weight).norm().item<double>(),
              tolerance * kernel.weight.norm().item<double>());
    EXPECT_LE((kernel.exp_avg_sq - operators.exp_avg_sq).norm().item<double>(),
              tolerance * kernel.exp_avg_sq.norm().item<double>());
    if (type == at::kBFloat16) {
      EXPECT_LE(kernel.weight.ne(operators.weight).to(at::kDouble).mean().item<double>(), 0.01);
    }
  }
}

TEST(Adamw, ClippingScalesTheWholeGradient) {
  AdamwTensors clipped = tensors(8, at::kFloat, at::kFloat), scaled = tensors(8, at::kFloat, at::kFloat);
  run(clipped, update_with(1e-3, 0), 0.25);
  scaled.gradient.mul_(0.25);
  run(scaled, update_with(1e-3, 0));
  EXPECT_TRUE(clipped.exp_avg.equal(scaled.exp_avg));
  EXPECT_TRUE(clipped.weight.equal(scaled.weight));
}

// Fails each allocation of an update of three tensors in turn and goes on where it stopped.
TEST(Adamw, AnUpdateThatRanOutOfMemoryGoesOnWhereItStopped) {
  install_host_allocator();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    std::vector<AdamwItem> start;
    for (const bool master : {false, true, false}) {
      AdamwTensors t = tensors(1000, type, type);
      t.gradient = at::randn({2000}).to(type).slice(0, 0, 2000, 2);  // is laid out anew, which takes memory
      if (master) t.master = at::ones({1000});
      start.push_back({t, update_with(1e-2, 7)});
    }
    const auto copy = [&] {
      std::vector<AdamwItem> items = start;
      for (AdamwItem& item : items) {
        AdamwTensors& t = item.tensors;
        for (at::Tensor* tensor : {&t.weight, &t.exp_avg, &t.exp_avg_sq, &t.master}) {
          if (tensor->defined()) *tensor = tensor->clone();
        }
      }
      return items;
    };
    const at::Tensor scale = at::ones({});
    const std::vector<AdamwItem> expected = copy();
    AdamwProgress whole;
    adamw_update(expected, scale, whole);
    int64_t failures = 0;
    for (bool failed = true; failed; failures += failed ? 1 : 0) {
      const std::vector<AdamwItem> items = copy();
      AdamwProgress progress;
      fail_host_allocation(failures + 1);
      failed = false;
      try {
        adamw_update(items, scale, progress);
      } catch (const c10::OutOfMemoryError&) {
        failed = true;
      }
      fail_host_allocation(0);
      if (failed) adamw_update(items, scale, progress);
      for (size_t i = 0; i < items.size(); i++) {
        const AdamwTensors &ours = items[i].tensors, &other = expected[i].tensors;
        ASSERT_TRUE(ours.weight.equal(other.weight)) << failures << " " << i;
        ASSERT_TRUE(ours.exp_avg.equal(other.exp_avg)) << failures << " " << i;
        ASSERT_TRUE(ours.exp_avg_sq.equal(other.exp_avg_sq)) << failures << " " << i;
        if (ours.master.defined()) {
          ASSERT_TRUE(ours.master.equal(other.master)) << failures << " " << i;
        }
      }
    }
    EXPECT_GE(failures, 3);
  }
}

}  // namespace
}  // namespace trainer
