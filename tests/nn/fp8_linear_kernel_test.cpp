// Linear layers with adapters on weights in FP8, whose codes are multiplied as on a GPU that can, on an
// emulated one.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "nn/linear_group.h"
#include "ops/emulated_kernels.h"
#include "support/reference.h"
#include "weights/fp8_products.h"
#include "weights/fp8_weight.h"

namespace trainer {
namespace {

constexpr int64_t kRows = 50, kInputs = 64;

// Three layers on one input, with the gradients of their outputs side by side or apart.
struct Fp8Layers {
  Fp8Layers(double dropout, bool together) : x(random.normal({kRows, kInputs}, at::kBFloat16)) {
    x.requires_grad_(true);
    for (const int64_t outputs : {64, 32, 128}) {
      const at::Tensor sizes = at::logspace(-2, 1, outputs).unsqueeze(1);
      const Fp8Tensor codes = quantise_fp8("w", random.normal({outputs, kInputs}) * sizes);
      Projection p;
      p.weight = Weight(std::make_shared<Fp8Weight>(codes, at::kBFloat16));
      p.a = random.normal({8, kInputs}).requires_grad_(true);
      p.b = random.normal({outputs, 8}).requires_grad_(true);
      p.key = static_cast<uint64_t>(outputs);
      p.dropout = dropout;
      p.scale = 0.5;
      projections.push_back(p);
      exact_weights.push_back(widen_fp8(codes, 0, outputs, at::kFloat).to(at::kDouble));
    }
    const at::Tensor all = random.normal({kRows, 224}, at::kBFloat16);
    for (const auto& [first, outputs] : {std::pair<int64_t, int64_t>{0, 64}, {64, 32}, {96, 128}}) {
      const at::Tensor part = all.narrow(1, first, outputs);
      gradients.push_back(together ? part : part.contiguous());
    }
  }

  struct Results {
    std::vector<at::Tensor> outputs, of_adapters;
    at::Tensor of_x;
  };
  Results results() const {
    std::vector<at::Tensor> inputs{x};
    for (const Projection& p : projections) inputs.insert(inputs.end(), {p.a, p.b});
    Results all;
    all.outputs = linear_group(x, keys, projections, x.scalar_type());
    all.of_adapters = torch::autograd::grad(all.outputs, inputs, gradients);
    all.of_x = all.of_adapters.front();
    all.of_adapters.erase(all.of_adapters.begin());
    return all;
  }
  // In fp64, with the weights that the codes stand for.
  Fp8Layers exact() const {
    Fp8Layers out = *this;
    const auto leaf = [](const at::Tensor& t) { return t.detach().to(at::kDouble).requires_grad_(true); };
    out.x = leaf(x);
    for (size_t i = 0; i < projections.size(); i++) {
      out.projections[i].weight = exact_weights[i];
      out.projections[i].a = leaf(projections[i].a);
      out.projections[i].b = leaf(projections[i].b);
      out.gradients[i] = gradients[i].to(at::kDouble);
    }
    return out;
  }

  Random random{5};
  at::Tensor x, keys = at::arange(kRows, at::kLong) * 7919;
  std::vector<Projection> projections;
  std::vector<at::Tensor> gradients, exact_weights;
};

struct Fp8LayersCase {
  double dropout;
  bool together;
  int64_t factors;  // x forward; gradients and codes backward, for each product there
};
class Fp8Linear : public testing::TestWithParam<Fp8LayersCase> {};

// A value in e4m3 is off by 2.7 % on average. Adapters are not in it.
TEST_P(Fp8Linear, MultipliesTheCodesForwardAndBackward) {
  const Fp8Layers layers(GetParam().dropout, GetParam().together);
  const Fp8Layers::Results exact = layers.exact().results();
  OperatorsOnAnEmulatedGpu operators;
  const Fp8ProductsInTests products;
  operators.gpu.take_used();
  const Fp8Layers::Results ours = layers.results();
  const std::vector<std::string> used = operators.gpu.take_used();
  const auto times =
      std::ranges::count_if(used, [](const std::string& one) { return one.starts_with("fp8.cu"); });
  EXPECT_EQ(times, GetParam().factors) << "or a weight was widened";
  for (size_t i = 0; i < exact.outputs.size(); i++)
    EXPECT_LE(relative_difference(ours.outputs[i], exact.outputs[i]), 0.035) << i;
  EXPECT_LE(relative_difference(ours.of_x, exact.of_x), 0.035);
  for (size_t i = 0; i < exact.of_adapters.size(); i++)
    EXPECT_LE(relative_difference(ours.of_adapters[i], exact.of_adapters[i]), 5e-3) << i;
}

INSTANTIATE_TEST_SUITE_P(Cases, Fp8Linear,
                         testing::Values(Fp8LayersCase{0.0, true, 1 + 2}, Fp8LayersCase{0.1, true, 1 + 2},
                                         Fp8LayersCase{0.0, false, 1 + 3 + 3}));

}  // namespace
}  // namespace trainer
