// A residual stream gives the bits of the sums and norms one by one, gradients too.
#include "nn/residual_stream.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ops/dropout.h"
#include "support/reference.h"

namespace trainer {
namespace {

struct Case {
  at::ScalarType type;
  double p;
  NormScale scale;
};

class ResidualStreams : public testing::TestWithParam<Case> {
 protected:
  static constexpr int64_t kSize = 48;

  // in: x, two parts, the weight of the norm. Two parts are added; the last norm is used or not.
  at::Tensor through_stream(const Tensors& in, bool norm_last) const {
    ResidualStream stream(in[0]);
    RmsNorm norm(kSize, NormFacts{1e-5, GetParam().scale});
    norm.weight.value = in[3];
    stream.add(stream.normed(norm) * in[1], keys(), 5, GetParam().p);
    stream.add(stream.normed(norm) * in[2], keys(), 6, GetParam().p);
    return norm_last ? stream.normed(norm) * 3 : stream.sum();
  }
  at::Tensor one_by_one(const Tensors& in, bool norm_last) const {
    RmsNorm norm(kSize, NormFacts{1e-5, GetParam().scale});
    norm.weight.value = in[3];
    at::Tensor h = in[0] + dropout(norm.forward(in[0]) * in[1], keys(), 5, GetParam().p);
    h = h + dropout(norm.forward(h) * in[2], keys(), 6, GetParam().p);
    return norm_last ? norm.forward(h) * 3 : h;
  }

 private:
  static at::Tensor keys() { return at::arange(30).view({3, 10}); }
};

TEST_P(ResidualStreams, ValueAndGradientsHaveTheBitsOfSumsAndNormsOneByOne) {
  const at::ScalarType type = GetParam().type;
  Random random(31);
  const std::vector<int64_t> shape{3, 10, kSize};
  const Tensors in{random.normal(shape, type), random.normal(shape, type), random.normal(shape, type),
                   random.normal({kSize}, type)};
  const at::Tensor weight = random.normal(shape, type);
  for (const bool norm_last : {true, false}) {
    const Tensors ours =
        value_and_gradients([&](const Tensors& t) { return through_stream(t, norm_last); }, in, weight, type);
    const Tensors expected =
        value_and_gradients([&](const Tensors& t) { return one_by_one(t, norm_last); }, in, weight, type);
    ASSERT_EQ(ours.size(), 5U);
    for (size_t i = 0; i < 4; i++) EXPECT_TRUE(ours[i].equal(expected[i])) << i;
    // The weight's three gradients are summed in the order in which they come.
    EXPECT_LE(relative_difference(ours[4], expected[4]), type == at::kFloat ? 1e-6 : 4e-3);
  }
}

TEST(ResidualStream, WithoutANormIsTheSum) {
  const at::Tensor x = at::full({2, 4}, 1.0f), y = at::full({2, 4}, 2.0f);
  ResidualStream stream(x);
  EXPECT_TRUE(stream.normed(std::optional<RmsNorm>()).equal(x));
  stream.add(y);
  stream.add(y);
  EXPECT_TRUE(stream.normed(std::optional<RmsNorm>()).equal(at::full({2, 4}, 5.0f)));
  EXPECT_TRUE(stream.sum().equal(at::full({2, 4}, 5.0f)));
}

// The first layer of an adapter on a frozen embedding: only what is added needs a gradient.
TEST(ResidualStream, APartAloneMayNeedAGradient) {
  Random random(33);
  const at::Tensor x = random.normal({2, 4});
  const at::Tensor y = random.normal({2, 4}).set_requires_grad(true);
  RmsNorm norm(4, 1e-5);
  norm.weight.value = at::ones({4});
  ResidualStream stream(x);
  stream.add(y);
  const at::Tensor out = stream.normed(norm).sum() + stream.sum().square().sum();
  out.backward();
  const at::Tensor y2 = y.detach().clone().set_requires_grad(true);
  const at::Tensor h = x + y2;
  (norm.forward(h).sum() + h.square().sum()).backward();
  EXPECT_TRUE(y.grad().equal(y2.grad()));
}

INSTANTIATE_TEST_SUITE_P(Cases, ResidualStreams,
                         testing::Values(Case{at::kFloat, 0.0, NormScale::weight},
                                         Case{at::kFloat, 0.3, NormScale::weight},
                                         Case{at::kBFloat16, 0.0, NormScale::weight},
                                         Case{at::kBFloat16, 0.3, NormScale::one_plus_weight}));

}  // namespace
}  // namespace trainer
