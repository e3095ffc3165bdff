// Linear layers with adapters as a GPU multiplies them, on an emulated one.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "device/target_device.h"
#include "nn/gpu_of_adapters.h"
#include "nn/linear_group.h"
#include "nn/packed_linear_group.h"
#include "ops/kernels.h"
#include "ops/packed_adapters.h"
#include "support/coded_weight.h"
#include "support/compile_kernels.h"
#include "support/launch_counter.h"
#include "support/planned_bytes.h"
#include "support/reference.h"

namespace trainer {
namespace {

constexpr int64_t kRows = 50, kInputs = 64;
constexpr int64_t kManyRows = 720;  // for the packed adapters to be an eighth of the input

// Layers with different outputs and ranks on one input.
struct Layers {
  Layers(at::ScalarType type, double dropout, bool biased, int64_t rows = kRows) {
    Random random(5);
    x = random.normal({rows, kInputs}, type).requires_grad_(true);
    keys = at::arange(rows, at::kLong) * 7919;
    for (const auto& [outputs, rank] : {std::pair<int64_t, int64_t>{64, 8}, {32, 4}, {128, 8}}) {
      Projection p;
      p.weight = random.normal({outputs, kInputs}, type);
      if (biased) p.bias = random.normal({outputs}, type);
      p.a = random.normal({rank, kInputs}, at::kFloat).requires_grad_(true);
      p.b = random.normal({outputs, rank}, at::kFloat).requires_grad_(true);
      p.key = static_cast<uint64_t>(outputs);
      p.dropout = dropout;
      p.scale = 0.7;
      projections.push_back(p);
      gradients.push_back(random.normal({rows, outputs}, type));
    }
  }

  // Outputs, then the gradients of x and of every A and B.
  std::vector<at::Tensor> results(size_t used = 3) const {
    std::vector<at::Tensor> inputs{x};
    for (const Projection& p : projections) inputs.insert(inputs.end(), {p.a, p.b});
    std::vector<at::Tensor> out = linear_group(x, keys, projections, x.scalar_type());
    const std::vector<at::Tensor> roots(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(used));
    const auto found = torch::autograd::grad(
        roots, inputs, {gradients.begin(), gradients.begin() + static_cast<std::ptrdiff_t>(used)},
        std::nullopt, false, /*allow_unused=*/true);
    out.insert(out.end(), found.begin(), found.end());
    return out;
  }

  // The same numbers in fp64.
  Layers exact() const {
    Layers out = *this;
    const auto leaf = [](const at::Tensor& t) { return t.detach().to(at::kDouble).requires_grad_(true); };
    out.x = leaf(x);
    for (size_t i = 0; i < projections.size(); i++) {
      Projection& p = out.projections[i];
      p.weight = p.weight.tensor().to(at::kDouble);
      if (p.bias) p.bias = p.bias->to(at::kDouble);
      p.a = leaf(p.a);
      p.b = leaf(p.b);
      out.gradients[i] = gradients[i].to(at::kDouble);
    }
    return out;
  }

  at::Tensor x, keys;
  std::vector<Projection> projections;
  std::vector<at::Tensor> gradients;
};

// Over all tensors; each counts the same.
double difference_of_all(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double squares = 0;
  for (size_t i = 0; i < a.size(); i++) {
    EXPECT_EQ(a[i].defined(), b[i].defined()) << i;
    if (a[i].defined()) squares += std::pow(relative_difference(a[i], b[i]), 2);
  }
  return std::sqrt(squares / static_cast<double>(a.size()));
}

struct PackedCase {
  at::ScalarType type;
  double dropout;
  bool biased;
  int64_t rows = kRows;
};
class PackedLinear : public ::testing::TestWithParam<PackedCase> {};

TEST_P(PackedLinear, IsNoLessExactThanLayerByLayer) {
  const auto [type, dropout, biased, rows] = GetParam();
  const Layers layers(type, dropout, biased, rows);
  for (const size_t used : {3, 2}) {  // outputs that something depends on
    const std::vector<at::Tensor> exact = layers.exact().results(used), one_by_one = layers.results(used);
    GpuOfAdapters gpu;
    const std::vector<at::Tensor> packed = layers.results(used);
    EXPECT_EQ(gpu.take_used().size(), rows == kManyRows ? 1u : 2u)
        << "packed forward, and where they are not "
           "small beside x, again in backward";
    // In fp32 only the order of sums differs.
    const double most = type == at::kFloat ? 1.2 : 1.0;
    EXPECT_LE(difference_of_all(packed, exact), most * difference_of_all(one_by_one, exact)) << used;
    for (size_t i = 0; i < packed.size(); i++) {
      if (!packed[i].defined()) continue;
      EXPECT_EQ(packed[i].scalar_type(), one_by_one[i].scalar_type()) << i;
    }
  }
}

// The same numbers in tensors that are columns, or rows, of one.
std::vector<at::Tensor> parts_of_one(const std::vector<at::Tensor>& parts, int64_t dim) {
  const at::Tensor all = at::cat(parts, dim);
  std::vector<at::Tensor> out;
  int64_t first = 0;
  for (const at::Tensor& part : parts) {
    out.push_back(all.narrow(dim, first, part.size(dim)));
    first += part.size(dim);
  }
  return out;
}

// With weights below each other and gradients of the outputs next to each other.
Layers side_by_side(const Layers& layers) {
  Layers out = layers;
  std::vector<at::Tensor> weights;
  for (const Projection& p : layers.projections) weights.push_back(p.weight.tensor());
  weights = parts_of_one(weights, 0);
  for (size_t i = 0; i < weights.size(); i++) out.projections[i].weight = weights[i];
  out.gradients = parts_of_one(layers.gradients, 1);
  return out;
}

TEST_P(PackedLinear, IsAsExactWhereAllLiesSideBySide) {
  const auto [type, dropout, biased, rows] = GetParam();
  const Layers layers(type, dropout, biased, rows), joined = side_by_side(layers);
  const std::vector<at::Tensor> exact = layers.exact().results();
  const GpuOfAdapters gpu;
  EXPECT_LE(difference_of_all(joined.results(), exact), 1.2 * difference_of_all(layers.results(), exact));
}

TEST(PackedLinear, MultipliesOnceWhatLiesSideBySide) {
  Layers layers(at::kBFloat16, 0, false);
  const auto to_meta = [](const at::Tensor& t) {
    return t.detach().to(at::kMeta).set_requires_grad(t.requires_grad());
  };
  layers.x = to_meta(layers.x);
  layers.keys = to_meta(layers.keys);
  for (Projection& p : layers.projections) {
    p.weight = to_meta(p.weight.tensor());
    p.a = to_meta(p.a);
    p.b = to_meta(p.b);
  }
  for (at::Tensor& gradient : layers.gradients) gradient = to_meta(gradient);
  const PlanningFor planning(c10::kCUDA);
  LaunchCounter counter;
  layers.results();
  const StepLaunches apart = counter.take();
  side_by_side(layers).results();
  const StepLaunches together = counter.take();
  EXPECT_EQ(apart.forward.products, 5);  // all A, all B, three weights
  EXPECT_EQ(together.forward.products, 3);
  EXPECT_EQ(apart.backward.products,
            11);  // three each through B, for B and through weights; for and through A
  EXPECT_EQ(together.backward.products, 7);
}

INSTANTIATE_TEST_SUITE_P(Cases, PackedLinear,
                         testing::Values(PackedCase{at::kFloat, 0, false}, PackedCase{at::kFloat, 0.25, true},
                                         PackedCase{at::kBFloat16, 0, true},
                                         PackedCase{at::kBFloat16, 0.25, false, kManyRows},
                                         PackedCase{at::kBFloat16, 0.25, false}));

TEST(PackedLinear, IsForFrozenWeightsWithAdaptersOfOneScale) {
  GpuOfAdapters gpu;
  const Layers layers(at::kFloat, 0, false);
  const auto packs = [&](const std::function<void(Projection&)>& change) {
    std::vector<Projection> projections = layers.projections;
    change(projections[1]);
    return can_pack(layers.x, projections, at::kFloat);
  };
  EXPECT_TRUE(packs([](Projection&) {}));
  EXPECT_FALSE(packs([](Projection& p) { p.scale = 1; }));
  EXPECT_TRUE(packs([](Projection& p) { p.a = p.b = at::Tensor(); }));
  std::vector<Projection> plain = layers.projections;
  for (Projection& p : plain) p.a = p.b = at::Tensor();
  EXPECT_FALSE(can_pack(layers.x, plain, at::kFloat)) << "no adapter at all";
  EXPECT_FALSE(packs([](Projection& p) { p.weight = p.weight.tensor().clone().requires_grad_(true); }));
  EXPECT_FALSE(packs([](Projection& p) { p.weight = p.weight.tensor().to(at::kBFloat16); }));
}

// Adapters on q and v, and none on k.
TEST(PackedLinear, TakesALayerWithoutAnAdapter) {
  for (const double dropout : {0.0, 0.25}) {
    Layers some(at::kFloat, dropout, true);
    Projection& without = some.projections[1];
    without.a = without.b = at::Tensor();
    without.dropout = 0;
    const auto results = [&](const Layers& layers) {
      const Projection &first = layers.projections[0], &last = layers.projections[2];
      std::vector<at::Tensor> out = linear_group(layers.x, layers.keys, layers.projections, at::kFloat);
      const auto found =
          torch::autograd::grad(out, {layers.x, first.a, first.b, last.a, last.b}, layers.gradients);
      out.insert(out.end(), found.begin(), found.end());
      return out;
    };
    const std::vector<at::Tensor> one_by_one = results(some);
    GpuOfAdapters gpu;
    const std::vector<at::Tensor> packed = results(some), joined = results(side_by_side(some));
    EXPECT_FALSE(gpu.take_used().empty());
    EXPECT_LE(difference_of_all(packed, one_by_one), 1e-6);
    EXPECT_LE(difference_of_all(joined, one_by_one), 1e-6);
  }
}

TEST(PackedLinear, AWeightThatIsNoTensorIsMadeForEachProduct) {
  GpuOfAdapters gpu;
  Layers dense(at::kFloat, 0.25, true), coded = dense;
  for (size_t i = 0; i < dense.projections.size(); i++) {
    const Weight codes(std::make_shared<test::CodedWeight>(dense.projections[i].weight.tensor()));
    coded.projections[i].weight = codes;
    dense.projections[i].weight = Weight(codes.materialize(at::kFloat));
  }
  EXPECT_TRUE(can_pack(coded.x, coded.projections, at::kFloat));
  const std::vector<at::Tensor> expected = dense.results(), ours = coded.results();
  for (size_t i = 0; i < expected.size(); i++) EXPECT_TRUE(ours[i].equal(expected[i])) << i;
}

TEST(FrozenLinear, AnswersWithOneProductOfWhatLiesSideBySideOnAnEmulatedGpu) {
  Layers layers(at::kFloat, 0, true);
  for (Projection& p : layers.projections) p.a = p.b = at::Tensor();
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> apart = linear_group(layers.x, layers.keys, layers.projections, at::kFloat);
  const CpuActsAsGpu acts;
  LaunchCounter counter;
  const std::vector<at::Tensor> together =
      linear_group(layers.x, layers.keys, side_by_side(layers).projections, at::kFloat);
  EXPECT_EQ(counter.take().forward.products, 1);
  for (size_t i = 0; i < apart.size(); i++) EXPECT_LE(relative_difference(together[i], apart[i]), 1e-6) << i;
}

// A trained weight [512, 256] and the gradient of x W^T for one micro-batch.
void add_gradient_of(const at::Tensor& weight, const at::Tensor& x, const at::Tensor& gradient) {
  Projection p;
  p.weight = weight;
  const at::Tensor keys = at::empty({x.size(0)}, x.options().dtype(at::kLong));
  linear_group(x, keys, {p}, x.scalar_type())[0].backward(gradient);
}

TEST(TrainedLinear, AddsTheGradientsOfMicroBatchesByTheirProductsOnAnEmulatedGpu) {
  Random random(6);
  const at::Tensor weight = random.normal({512, 256}).requires_grad_(true);
  at::Tensor exact = at::zeros({512, 256}, at::kDouble);
  const void* sum = nullptr;
  const CpuActsAsGpu acts;
  for (int micro_batch = 0; micro_batch < 3; micro_batch++) {
    const at::Tensor x = random.normal({40, 256}), gradient = random.normal({40, 512});
    add_gradient_of(weight, x, gradient);
    exact += gradient.to(at::kDouble).t().mm(x.to(at::kDouble));
    EXPECT_TRUE(micro_batch == 0 || weight.grad().const_data_ptr() == sum);
    sum = weight.grad().const_data_ptr();
    EXPECT_LE(relative_difference(weight.grad(), exact), 1e-6) << micro_batch;
  }
}

TEST(TrainedLinear, MakesNoMatrixForAGradientThatIsAddedOnAnEmulatedGpu) {
  const at::TensorOptions bf16 = at::TensorOptions(at::kMeta).dtype(at::kBFloat16);
  const at::Tensor weight = at::empty({512, 256}, bf16).set_requires_grad(true),
                   x = at::empty({40, 256}, bf16), gradient = at::empty({40, 512}, bf16);
  const auto matrices = [&] {
    const std::vector<int64_t> bytes = planned([&] { add_gradient_of(weight, x, gradient); });
    return std::ranges::count(bytes, 512 * 256 * 2);
  };
  EXPECT_EQ(matrices(), 1);
  EXPECT_EQ(matrices(), 0);
}

// As in training: the gradients of micro-batches are summed in the leaves.
TEST(PackedLinear, AddsTheGradientsOfAMicroBatchInOneLaunch) {
  const auto sums_of = [](bool on_gpu) {
    const Layers layers(at::kBFloat16, 0, false, kManyRows);
    std::optional<CpuActsAsGpu> acts;
    if (on_gpu) acts.emplace();
    for (int micro_batch = 0; micro_batch < 3; micro_batch++) {
      const auto out = linear_group(layers.x, layers.keys, layers.projections, at::kBFloat16);
      torch::autograd::backward(out, layers.gradients);
    }
    std::vector<at::Tensor> sums;
    for (const Projection& p : layers.projections) sums.insert(sums.end(), {p.a.grad(), p.b.grad()});
    return sums;
  };
  GpuOfAdapters gpu;
  const std::vector<at::Tensor> by_autograd = sums_of(false);
  gpu.take_used();
  const std::vector<at::Tensor> ours = sums_of(true);
  const std::vector<std::string> used = gpu.take_used();
  EXPECT_EQ(std::ranges::count(used, "packed_adapters.cu Element=float"), 2) << "but for the first one";
  for (size_t i = 0; i < ours.size(); i++) EXPECT_TRUE(ours[i].equal(by_autograd[i])) << i;
}

TEST(PackedLinear, SharesThePackedAdaptersOfAnUpdate) {
  const Layers layers(at::kBFloat16, 0, false, kManyRows);
  GpuOfAdapters gpu;
  const auto run = [&](const std::shared_ptr<AdapterPacks>& packs) {
    return linear_group(layers.x, layers.keys, layers.projections, at::kBFloat16, packs);
  };
  const std::vector<at::Tensor> expected = run(nullptr);
  const auto packs = std::make_shared<AdapterPacks>();
  gpu.take_used();
  for (int micro_batch = 0; micro_batch < 3; micro_batch++) {
    const std::vector<at::Tensor> out = run(packs);
    for (size_t i = 0; i < out.size(); i++) EXPECT_TRUE(out[i].equal(expected[i])) << i;
  }
  EXPECT_EQ(gpu.take_used().size(), 1u);
}

TEST(PackedLinear, KernelsAreCompiledByNvrtc) {
  if (!has_nvrtc()) GTEST_SKIP() << "NVIDIA's compiler is not installed";
  const GpuOfAdapters gpu;
  test::expect_compiles(kernel_file("packed_adapters"), gpu);
}

}  // namespace
}  // namespace trainer
