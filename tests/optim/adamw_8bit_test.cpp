// 8-bit AdamW gives what bitsandbytes gives, and continues where it ran out of memory.
#include "trainer/optim/adamw_8bit.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/formats/safetensors.h"
#include "trainer/memory/host_allocator.h"

#include "models/tensor_views.h"
#include "optim/many_coded_tensors.h"
#include "support/reference_updates.h"

namespace trainer {
namespace {

using test::coded_tensors;
using test::members;

AdamwUpdate golden_update(int64_t step) { return {1e-2, 0.9, 0.999, 1e-8, 0.1, step, 3}; }

void run(const Adamw8bitTensors& t, const AdamwUpdate& update, double scale = 1.0) {
  AdamwProgress progress;
  adamw_8bit_update({{t, update}}, at::full({}, scale), progress);
}

struct GoldenUpdates {
  at::Tensor operator()(const std::string& name) const {
    return mapped_tensor(file.tensors.at(name), file.mapping).clone();
  }
  Adamw8bitTensors start() const { return coded_tensors((*this)("weight"), at::Tensor()); }

  SafetensorsFile file = read_safetensors(SOURCE_DIR "/tests/goldens/optim/adamw_8bit.safetensors");
};

double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).norm() / b.norm()).item<double>();
}

// Where a moment is within rounding of a limit, one side may take one code and the other the next one.
void expect_codes(const at::Tensor& ours, const at::Tensor& theirs, int64_t most) {
  const at::Tensor distance = (ours.to(at::kInt) - theirs.to(at::kInt)).abs();
  EXPECT_LE(distance.max().item<int>(), 1);
  EXPECT_LE(distance.gt(0).sum().item<int64_t>(), most);
}

TEST(Adamw8bit, GivesTheFirstUpdateOfBitsandbytes) {
  const GoldenUpdates golden;
  Adamw8bitTensors t = golden.start();
  t.gradient = golden("gradient.1");
  run(t, golden_update(1));
  // Its CPU decays the weight before the update, which is a factor of 1 - 1e-3 of the update.
  EXPECT_LE(relative_difference(t.weight - golden("weight"), golden("theirs.weight") - golden("weight")),
            2e-3);
  EXPECT_LE(relative_difference(t.exp_avg_absmax, golden("theirs.exp_avg_absmax")), 1e-6);
  EXPECT_LE(relative_difference(t.exp_avg_sq_absmax, golden("theirs.exp_avg_sq_absmax")), 1e-6);
  // Its CPU finds large ones with an error of 1 / 32768 (tests/make_goldens/adamw_8bit).
  const at::Tensor large = golden("theirs.exp_avg_sq").to(at::kInt).ge(63);
  ASSERT_GT(large.sum().item<int64_t>(), 100);
  expect_codes(t.exp_avg_sq.masked_select(large), golden("theirs.exp_avg_sq").masked_select(large), 10);
}

TEST(Adamw8bit, GivesTheUpdatesOfBitsandbytesKernel) {
  const GoldenUpdates golden;
  Adamw8bitTensors t = golden.start();
  for (int64_t step = 1; step <= 4; step++) {
    t.gradient = golden("gradient." + std::to_string(step));
    run(t, golden_update(step));
  }
  EXPECT_LE(relative_difference(t.weight, golden("kernel.weight")), 1e-6);
  EXPECT_LE(relative_difference(t.exp_avg_absmax, golden("kernel.exp_avg_absmax")), 1e-6);
  EXPECT_LE(relative_difference(t.exp_avg_sq_absmax, golden("kernel.exp_avg_sq_absmax")), 1e-6);
  const at::Tensor zeros = golden("kernel.exp_avg_absmax").eq(0).repeat_interleave(256).narrow(0, 0, 4200);
  EXPECT_EQ(zeros.sum().item<int64_t>(), 256) << "the codes of a block of zeros are of no account";
  expect_codes(t.exp_avg.masked_select(~zeros), golden("kernel.exp_avg").masked_select(~zeros), 3);
  expect_codes(t.exp_avg_sq.masked_select(~zeros), golden("kernel.exp_avg_sq").masked_select(~zeros), 3);
}

TEST(Adamw8bit, RoundingOfWeightsDependsOnTheKeyAndOnNothingElse) {
  const auto weight_with = [](uint64_t key) {
    const Adamw8bitTensors t =
        coded_tensors(at::ones({5000}, at::kBFloat16), at::ones({5000}, at::kBFloat16));
    run(t, {1e-3, 0.9, 0.999, 1e-8, 0.0, 1, key});
    return t.weight;
  };
  EXPECT_TRUE(weight_with(1).equal(weight_with(1)));
  EXPECT_FALSE(weight_with(1).equal(weight_with(2)));
  EXPECT_NEAR(weight_with(5).to(at::kDouble).mean().item<double>(), 1 - 1e-3, 2e-4);
}

TEST(Adamw8bit, MasterWeightsCarryWhatTheBf16WeightCannot) {
  Adamw8bitTensors t = coded_tensors(at::ones({300}, at::kBFloat16), at::ones({300}, at::kBFloat16));
  t.master = at::ones({300});
  run(t, {1e-4, 0.9, 0.999, 1e-8, 0.0, 1, 0});
  EXPECT_NEAR(t.master[299].item<double>(), 1 - 1e-4, 1e-7);
  EXPECT_EQ(t.weight[299].item<double>(), 1.0);
}

// As small as fp32 has them: their inverse would not be finite.
TEST(Adamw8bit, MomentsWithoutAnInverseCountAsZero) {
  const Adamw8bitTensors t = coded_tensors(at::ones({256}), at::full({256}, 1e-38f));
  for (int64_t step = 1; step <= 3; step++) run(t, {1e-3, 0.9, 0.999, 1e-8, 0.0, step, 0});
  EXPECT_TRUE(t.weight.isfinite().all().item<bool>());
  EXPECT_TRUE(t.exp_avg_absmax.isfinite().all().item<bool>());
}

TEST(Adamw8bit, LibTorchsOperatorsGiveTheValuesOfTheLoop) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const int64_t count : {5000, 256, 31}) {
      at::manual_seed(3);
      const Adamw8bitTensors start = coded_tensors(at::randn({count}).to(type), at::Tensor());
      Adamw8bitTensors loop = test::copy_of(start), operators = test::copy_of(start);
      for (int64_t step = 1; step <= 3; step++) {
        loop.gradient = operators.gradient = at::randn({count}).to(type);
        run(loop, golden_update(step), 0.5);
        reference::adamw_8bit(operators, 0.5, golden_update(step));
      }
      test::expect_close(operators, loop);
    }
  }
}

TEST(Adamw8bit, AnUpdateThatRanOutOfMemoryGoesOnWhereItStopped) {
  install_host_allocator();
  at::manual_seed(4);
  std::vector<Adamw8bitItem> start;
  for (const bool master : {false, true, false}) {
    const at::Tensor gradient = at::randn({2000}).slice(0, 0, 2000, 2);  // is laid out anew: an allocation
    Adamw8bitTensors t = coded_tensors(at::randn({1000}).to(at::kBFloat16), gradient);
    if (master) t.master = t.weight.to(at::kFloat);
    start.push_back({t, golden_update(1)});
  }
  const auto copy = [&] {
    std::vector<Adamw8bitItem> items = start;
    for (Adamw8bitItem& item : items) {
      item.tensors = test::copy_of(item.tensors);
      item.tensors.gradient = item.tensors.gradient.repeat_interleave(2).slice(0, 0, 2000, 2);
    }
    return items;
  };
  const at::Tensor scale = at::ones({});
  const std::vector<Adamw8bitItem> expected = copy();
  AdamwProgress whole;
  adamw_8bit_update(expected, scale, whole);
  int64_t failures = 0;
  for (bool failed = true; failed; failures += failed ? 1 : 0) {
    const std::vector<Adamw8bitItem> items = copy();
    AdamwProgress progress;
    fail_host_allocation(failures + 1);
    failed = false;
    try {
      adamw_8bit_update(items, scale, progress);
    } catch (const c10::OutOfMemoryError&) {
      failed = true;
    }
    fail_host_allocation(0);
    if (failed) adamw_8bit_update(items, scale, progress);
    for (size_t i = 0; i < items.size(); i++) {
      const auto ours = members(items[i].tensors), other = members(expected[i].tensors);
      for (size_t k = 0; k < ours.size(); k++) ASSERT_TRUE(ours[k].equal(other[k])) << failures << " " << i;
    }
  }
  EXPECT_GE(failures, 3);
}

TEST(Adamw8bit, KeepsCodesOfLargeParametersThatAreNoEmbeddings) {
  const auto parameter = [](const std::string& name, int64_t count, bool embedding) {
    return TrainedParameter{name, at::ones({count}, at::kBFloat16), true, embedding};
  };
  const std::vector<TrainedParameter> parameters{
      parameter("large", 4096, false), parameter("small", 4095, false), parameter("embedding", 5000, true)};
  OptimizerConfig config;
  config.master_weights = true;
  for (const auto& [dtype, type] : {std::pair(StateDtype::automatic, at::kFloat),
                                    {StateDtype::fp32, at::kFloat},
                                    {StateDtype::bf16, at::kBFloat16}}) {
    config.state_dtype = dtype;
    const OptimizerTensors kept = AdamW8bit(parameters, config, 0).tensors();
    EXPECT_EQ(kept.at("large").size(), 5U);
    for (const char* what : {"exp_avg", "exp_avg_sq"}) {
      EXPECT_EQ(kept.at("large").at(what).scalar_type(), at::kByte);
      EXPECT_EQ(kept.at("large").at(std::string(what) + "_absmax").sizes(), at::IntArrayRef({16}));
      for (const char* wide : {"small", "embedding"}) EXPECT_EQ(kept.at(wide).at(what).scalar_type(), type);
    }
    for (const auto& [name, tensors] : kept)
      EXPECT_EQ(tensors.at("master").scalar_type(), at::kFloat) << name;
  }
}

}  // namespace
}  // namespace trainer
