// Layers whose weight is not a plain tensor, and what layers save of their weights for backward.
#include "trainer/weights/weight.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/memory/host_allocator.h"
#include "trainer/nn/linear.h"
#include "trainer/nn/output_head.h"
#include "trainer/ops/linear_cross_entropy.h"

#include "nn/checkpoint.h"
#include "nn/embedding.h"
#include "support/coded_weight.h"
#include "support/reference.h"

namespace trainer {
namespace {

using test::CodedWeight;

void fill(Parameter& parameter, Random& random, double scale = 1.0) {
  parameter.value = (random.normal(parameter.shape) * scale).set_requires_grad(true);
}

// Frozen, with an adapter unless `options` is null; `dense`: the values of the codes as a tensor.
std::unique_ptr<Linear> coded_linear(int64_t in, int64_t out, at::ScalarType type, const LoraOptions* options,
                                     bool dense, uint64_t seed) {
  Random random(seed);
  auto linear = std::make_unique<Linear>(in, out, /*has_bias=*/true);
  linear->weight.value = random.normal({out, in}, type);
  linear->bias->value = random.normal({out}, type);
  test::code_frozen_weights(*linear, dense);
  if (options == nullptr) return linear;
  linear->add_lora(*options);
  fill(linear->lora->a.weight, random, 0.1);
  fill(linear->lora->b.weight, random);
  if (linear->lora->magnitude) fill(*linear->lora->magnitude, random);
  return linear;
}

const LoraOptions kLora{4, 2.0, 0.1, false, false}, kDora{4, 2.0, 0.0, true, false},
    kDoraDropout{4, 2.0, 0.1, true, false};

ForwardContext training_context() {
  ForwardContext context;
  context.training = true;
  return context;
}

// Layers on one input: without an adapter, with LoRA, with DoRA.
struct Group {
  Group(int64_t in, int64_t out, at::ScalarType type, bool dense) {
    layers.push_back(coded_linear(in, out, type, nullptr, dense, 1));
    for (const LoraOptions* options : {&kLora, &kDora, &kDoraDropout})
      layers.push_back(coded_linear(in, out, type, options, dense, 1 + layers.size()));
  }
  std::vector<at::Tensor> forward(const at::Tensor& x) const {
    std::vector<const Linear*> pointers;
    for (const auto& layer : layers) pointers.push_back(layer.get());
    return Linear::forward_together(pointers, x, at::arange(x.size(0)), training_context());
  }
  Tensors leaves() const {
    Tensors out;
    for (const auto& layer : layers) {
      layer->for_each_parameter([&](const std::string&, Parameter& parameter) {
        if (parameter.trained()) out.push_back(parameter.value.tensor());
      });
    }
    return out;
  }
  std::vector<std::unique_ptr<Linear>> layers;
};

at::Tensor sum_of(const std::vector<at::Tensor>& outputs) {
  at::Tensor sum = at::zeros({});
  for (const at::Tensor& y : outputs) sum = sum + y.to(at::kFloat).sin().sum();
  return sum;
}

// The value, then the gradients of x and of what is trained.
Tensors group_gradients(at::ScalarType type, bool dense) {
  const Group group(48, 40, type, dense);
  const at::Tensor x = Random(9).normal({40, 48}, type).set_requires_grad(true);
  Tensors inputs = group.leaves();
  inputs.insert(inputs.begin(), x);
  const at::Tensor value = sum_of(group.forward(x));
  Tensors out = torch::autograd::grad({value}, inputs);
  out.insert(out.begin(), value.detach());
  return out;
}

void expect_equal_tensors(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); i++) EXPECT_TRUE(a[i].equal(b[i])) << i;
}

TEST(WeightFromASource, GivesLinearLayersTheNumbersOfADenseOne) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    SCOPED_TRACE(type);
    expect_equal_tensors(group_gradients(type, /*dense=*/false), group_gradients(type, /*dense=*/true));
  }
}

TEST(WeightFromASource, GivesTheSameWhenABlockRecomputes) {
  const at::Tensor anchor = at::zeros({1}).set_requires_grad(true);
  const auto gradients = [&](bool recompute) {
    const Group group(48, 40, at::kFloat, /*dense=*/false);
    const at::Tensor x = Random(9).normal({40, 48});
    const auto block = [&](const at::Tensor& hidden, const auto&) { return group.forward(hidden)[1]; };
    const at::Tensor y =
        recompute ? checkpoint(x, std::nullopt, anchor, {block}) : block(x, std::optional<at::Tensor>());
    y.sin().sum().backward();
    return Tensors{group.leaves()[0].grad(), group.leaves()[1].grad()};
  };
  expect_equal_tensors(gradients(true), gradients(false));
}

TEST(WeightFromASource, GivesTheOutputHeadTheNumbersOfADenseOne) {
  const auto gradients = [](const LoraOptions* options, bool dense) {
    const auto made = coded_linear(32, 50, at::kFloat, options, dense, 5);
    Parameter embedding({50, 32});
    OutputHead head(embedding, {});
    Linear& own = head.own_weight();
    own.weight.value = made->weight.value;
    own.lora = std::move(made->lora);
    const at::Tensor hidden = Random(6).normal({20, 32}).set_requires_grad(true);
    const at::Tensor states = head.states(hidden, at::arange(20), ForwardContext{});
    const at::Tensor loss = head.loss(states, at::arange(20), {.label_smoothing = 0.1}).loss;
    Tensors inputs{hidden};
    if (own.lora) inputs.push_back(own.lora->a.weight.value.tensor());
    if (own.lora) inputs.push_back(own.lora->b.weight.value.tensor());
    Tensors out = torch::autograd::grad({loss}, inputs);
    out.push_back(loss.detach());
    return out;
  };
  for (const LoraOptions* options : {static_cast<const LoraOptions*>(nullptr), &kLora, &kDora})
    expect_equal_tensors(gradients(options, false), gradients(options, true));
}

TEST(WeightFromASource, GivesEmbeddingsTheNumbersOfADenseOne) {
  const at::Tensor ids = at::arange(12).view({3, 4});
  const auto looked_up = [&](const LoraOptions* options, bool dense) {
    Random random(3);
    Embedding embedding(30, 16);
    embedding.weight.value = random.normal({30, 16});
    test::code_frozen_weights(embedding, dense);
    if (options != nullptr) {
      embedding.add_lora(*options);
      fill(embedding.lora->a, random);
      fill(embedding.lora->b, random);
      if (embedding.lora->magnitude) fill(*embedding.lora->magnitude, random);
    }
    return embedding.forward(ids, at::kFloat).detach();
  };
  for (const LoraOptions* options : {static_cast<const LoraOptions*>(nullptr), &kLora, &kDora})
    EXPECT_TRUE(looked_up(options, false).equal(looked_up(options, true)));
}

// Memory in use as this process's allocator counts it.
class WeightMemory : public testing::Test {
 protected:
  static void SetUpTestSuite() { install_host_allocator(); }
  static int64_t in_use() { return host_memory().in_use; }
};

constexpr int64_t kIn = 2048, kOut = 4096, kWhole = kIn * kOut * 4;  // bytes of a weight in fp32

TEST_F(WeightMemory, NothingDenseStaysBetweenForwardAndBackward) {
  const Group group(kIn, kOut, at::kFloat, /*dense=*/false);
  const at::Tensor x = at::randn({4, kIn}).set_requires_grad(true);
  const int64_t before = in_use();
  const at::Tensor value = sum_of(group.forward(x));
  EXPECT_LT(in_use() - before, kWhole / 32);  // of four weights
  value.backward();
  EXPECT_TRUE(x.grad().defined());
}

TEST_F(WeightMemory, AWeightFromASourceIsNeverMadeAsAWholeForAProduct) {
  const auto linear = coded_linear(kIn, kOut, at::kFloat, &kLora, /*dense=*/true, 1);
  const at::Tensor exact = linear->weight.value.tensor();
  const auto source = std::make_shared<CodedWeight>(exact);
  linear->weight.value = Weight(source);
  const at::Tensor x = Random(2).normal({4, kIn}).set_requires_grad(true);
  const at::Tensor y = linear->forward(x, at::arange(4), ForwardContext{});
  const at::Tensor low_rank = x.mm(linear->lora->a.weight.value.tensor().t());
  const at::Tensor expected = x.mm(exact.t()) + linear->bias->value.tensor() +
                              low_rank.mm(linear->lora->b.weight.value.tensor().t()) * 2.0;
  EXPECT_LE(relative_difference(y, expected), 1e-5);
  const at::Tensor gradient = torch::autograd::grad({y.sum()}, {x})[0];
  EXPECT_LE(relative_difference(gradient, torch::autograd::grad({expected.sum()}, {x})[0]), 1e-5);
  EXPECT_LE(source->largest_panel(), kOut / 2);
}

// fp32 weights, trained ones among them, in a model that computes in bf16.
TEST_F(WeightMemory, AConvertedWeightDoesNotStayBetweenForwardAndBackward) {
  for (const bool trained : {false, true}) {
    Linear linear(kIn, kOut, false);
    linear.weight.value = at::randn({kOut, kIn}).set_requires_grad(trained);
    const at::Tensor x = at::randn({4, kIn}).to(at::kBFloat16).set_requires_grad(true);
    const int64_t before = in_use();
    const at::Tensor y = linear.forward(x, at::arange(4), training_context());
    EXPECT_LT(in_use() - before, kWhole / 32);
    y.sum().backward();
    EXPECT_EQ(linear.weight.value.tensor().grad().defined(), trained);
  }
}

TEST(Weight, AGradientReachesTheWiderLeafAsThroughAConversion) {
  const at::Tensor leaf = Random(4).normal({40, 48}).set_requires_grad(true);
  const at::Tensor x = Random(5).normal({16, 48}, at::kBFloat16).set_requires_grad(true);
  const auto gradients = [&](const at::Tensor& weight) {
    Linear linear(48, 40, false);
    linear.weight.value = weight;
    const at::Tensor y = linear.forward(x, at::arange(16), training_context());
    return torch::autograd::grad({y.to(at::kFloat).sin().sum()}, {leaf, x});
  };
  const Tensors direct = gradients(leaf);
  EXPECT_EQ(direct[0].scalar_type(), at::kFloat);
  expect_equal_tensors(direct, gradients(leaf.to(at::kBFloat16)));
}

TEST(Weight, OneFromASourceIsCountedAsItIsKeptAndIsNotTrained) {
  Weight weight(std::make_shared<CodedWeight>(at::randn({8, 16})));
  EXPECT_EQ(weight.nbytes(), 8 * 16 + 8 * 4);
  EXPECT_EQ(weight.sizes(), at::IntArrayRef({8, 16}));
  weight.set_requires_grad(false);
  EXPECT_THROW(weight.set_requires_grad(true), c10::Error);
  EXPECT_THROW(weight.tensor(), c10::Error);
}

}  // namespace
}  // namespace trainer
