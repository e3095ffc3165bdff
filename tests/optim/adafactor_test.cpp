// Adafactor's update compared with Transformers' (tests/make_goldens/adafactor), and its own ways with each
// other.
#include "trainer/optim/adafactor.h"

#include <fstream>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/config/load.h"
#include "trainer/formats/safetensors.h"
#include "trainer/memory/host_allocator.h"
#include "trainer/optim/schedule.h"

#include "models/tensor_views.h"
#include "optim/adafactor_items.h"
#include "support/reference_updates.h"

namespace trainer {
namespace {

using test::adafactor_tensors;
using test::adafactor_types;
using test::adafactor_update_of;
using test::AdafactorTypes;
using test::cloned;

const std::string kGoldens = SOURCE_DIR "/tests/goldens/optim/";

const std::map<std::string, std::vector<int64_t>>& golden_shapes() {
  static const std::map<std::string, std::vector<int64_t>> shapes{{"matrix", {6, 5}}, {"panels", {130, 140}},
                                                                  {"wide", {3, 700}}, {"three", {5, 4, 3}},
                                                                  {"vector", {7}},    {"one", {1}}};
  return shapes;
}

at::Tensor golden_weight(const std::vector<int64_t>& shape) {
  const at::Tensor numbers = at::arange(c10::multiply_integers(shape), at::kLong);
  return numbers.mul(31).remainder(257).sub(128).to(at::kFloat).div(256).view(shape);
}

at::Tensor golden_gradient(const std::vector<int64_t>& shape, int64_t step) {
  const at::Tensor numbers = at::arange(c10::multiply_integers(shape), at::kLong);
  const at::Tensor rows = numbers.floor_divide(shape.back());
  const at::Tensor values = numbers.mul(7919).add(step * 104729).remainder(1009).sub(504).to(at::kFloat) *
                            at::pow(2.0, rows.remainder(7).add(9).neg().to(at::kFloat));
  return (values * rows.ne(2)).view(shape);
}

// As the golden keeps it.
at::Tensor sample(const at::Tensor& tensor) {
  return tensor.numel() > 1000 ? tensor.flatten().slice(0, 0, tensor.numel(), 7) : tensor;
}

class LikeTransformers : public testing::TestWithParam<std::string> {};

TEST_P(LikeTransformers, AfterFiftyUpdates) {
  std::ifstream in(kGoldens + "adafactor.json");
  std::vector<std::string> overrides = nlohmann::json::parse(in).at(GetParam());
  overrides.insert(overrides.begin(), "optimizer.name=adafactor");
  Config config = load_config(std::nullopt, overrides);
  config.optimizer.warmup_ratio = 0;
  std::vector<TrainedParameter> parameters;
  for (const auto& [name, shape] : golden_shapes()) parameters.push_back({name, golden_weight(shape), true});
  const Gradients gradients(parameters, StateDtype::automatic);
  const auto optimizer = make_optimizer(parameters, config.optimizer, 1);
  const Schedule schedule(config.optimizer, 50);
  for (int64_t step = 0; step < 50; step++) {
    for (TrainedParameter& parameter : parameters)
      parameter.value.mutable_grad() = golden_gradient(golden_shapes().at(parameter.name), step);
    optimizer->step(gradients, gradients.norm(), config.training.max_grad_norm, schedule.learning_rate(step));
  }
  const SafetensorsFile golden = read_safetensors(kGoldens + "adafactor.safetensors");
  const auto expect_near = [&](const std::string& name, const at::Tensor& ours) {
    ASSERT_TRUE(golden.tensors.contains(GetParam() + "." + name)) << name;
    const at::Tensor expected = mapped_tensor(golden.tensors.at(GetParam() + "." + name), golden.mapping);
    EXPECT_LE(test::distance(sample(ours), expected), 1e-6) << name;
  };
  for (const TrainedParameter& parameter : parameters) expect_near(parameter.name, parameter.value);
  for (const auto& [parameter, kept] : optimizer->tensors()) {
    for (const auto& [what, tensor] : kept) expect_near(parameter + "." + what, tensor);
  }
}

INSTANTIATE_TEST_SUITE_P(Adafactor, LikeTransformers,
                         testing::Values("t5", "first_moment", "clipped", "relative", "warmup"),
                         [](const auto& param) { return param.param; });

void run(const AdafactorTensors& t, const AdafactorUpdate& update) {
  AdafactorProgress progress;
  adafactor_update({{t, update}}, at::full({}, 0.5), progress);
}

const std::vector<std::vector<int64_t>> kShapes{{300, 200}, {3, 1500}, {2, 70, 33}, {40000}, {5}, {1, 1}};

TEST(Adafactor, LibTorchsOperatorsGiveTheValuesOfTheLoop) {
  at::manual_seed(3);
  for (const AdafactorTypes& types : adafactor_types()) {
    for (const std::vector<int64_t>& shape : kShapes) {
      const AdafactorTensors loop = adafactor_tensors(shape, types), operators = cloned(loop);
      AdafactorUpdate update = adafactor_update_of(0xfedcba9876543210ull);
      run(loop, update);
      reference::adafactor(operators, 0.5, update);
      const std::vector<at::Tensor> ours = test::written(operators), expected = test::written(loop);
      for (size_t i = 0; i < ours.size(); i++) {
        const bool fp32 = ours[i].scalar_type() == at::kFloat;
        EXPECT_LE(test::distance(ours[i], expected[i]), fp32 ? 1e-6 : 1e-3) << i << at::IntArrayRef(shape);
        if (!fp32) {
          EXPECT_LE(ours[i].ne(expected[i]).to(at::kDouble).mean().item<double>(), 0.01);
        }
      }
    }
  }
}

TEST(Adafactor, TheResultDoesNotDependOnTheNumberOfThreads) {
  const int threads = at::get_num_threads();
  for (const AdafactorTypes& types : adafactor_types()) {
    at::manual_seed(4);
    const AdafactorTensors one = adafactor_tensors({2, 400, 90}, types), four = cloned(one);
    at::set_num_threads(1);
    run(one, adafactor_update_of(7));
    at::set_num_threads(4);
    run(four, adafactor_update_of(7));
    EXPECT_TRUE(test::same_bits(one, four));
  }
  at::set_num_threads(threads);
}

TEST(Adafactor, StochasticRoundingIsRightOnAverageWhereTheUpdateIsBelowOneStep) {
  // All updates are 1, and 1 - 1e-4 lies between bf16's 0.99609375 and 1.
  AdafactorTensors t = adafactor_tensors({400, 500}, {at::kBFloat16, at::kFloat});
  t.weight.fill_(1.0);
  t.gradient.fill_(1.0);
  AdafactorUpdate update = adafactor_update_of(5);
  update.learning_rate = 1e-4;
  update.keep = 0.0;
  update.clip_threshold = 1.0;
  update.weight_decay = 0.0;
  run(t, update);
  EXPECT_NEAR(t.weight.to(at::kDouble).mean().item<double>(), 1 - 1e-4, 2e-5);
}

TEST(Adafactor, RowsWithoutGradientDoNotMove) {
  AdafactorTensors t = adafactor_tensors({6, 40}, {});
  t.row.zero_();
  t.column.zero_();
  t.gradient.narrow(0, 2, 3).zero_();
  const at::Tensor before = t.weight.clone();
  AdafactorUpdate update = adafactor_update_of(5);
  update.keep = 0.0;
  update.weight_decay = 0.0;
  run(t, update);
  EXPECT_TRUE(t.weight.narrow(0, 2, 3).equal(before.narrow(0, 2, 3)));
  EXPECT_TRUE(t.weight.isfinite().all().item<bool>());
}

TEST(Adafactor, ATensorWithoutElementsIsLeftAlone) {
  run(adafactor_tensors({0, 4}, {}), adafactor_update_of(1));
}

// Fails each allocation of an update of three tensors in turn and goes on where it stopped.
TEST(Adafactor, AnUpdateThatRanOutOfMemoryGoesOnWhereItStopped) {
  install_host_allocator();
  at::manual_seed(6);
  for (const AdafactorTypes& types : adafactor_types()) {
    std::vector<AdafactorItem> start;
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2, 30, 20}, {700}, {40, 3}})
      start.push_back({adafactor_tensors(shape, types), adafactor_update_of(9)});
    const auto copy = [&] {
      std::vector<AdafactorItem> items = start;
      for (AdafactorItem& item : items) item.tensors = cloned(item.tensors);
      return items;
    };
    const at::Tensor scale = at::full({}, 0.5);
    const std::vector<AdafactorItem> expected = copy();
    AdafactorProgress whole;
    adafactor_update(expected, scale, whole);
    bool some_written = false;
    int64_t failures = 0;
    for (bool failed = true; failed; failures += failed ? 1 : 0) {
      const std::vector<AdafactorItem> items = copy();
      AdafactorProgress progress;
      fail_host_allocation(failures + 1);
      failed = false;
      try {
        adafactor_update(items, scale, progress);
      } catch (const c10::OutOfMemoryError&) {
        failed = true;
      }
      fail_host_allocation(0);
      some_written = some_written || (failed && progress.next > 0);
      if (failed) adafactor_update(items, scale, progress);
      for (size_t i = 0; i < items.size(); i++)
        ASSERT_TRUE(test::same_bits(items[i].tensors, expected[i].tensors)) << failures << " " << i;
    }
    EXPECT_TRUE(some_written);
  }
}

}  // namespace
}  // namespace trainer
