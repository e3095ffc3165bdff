// Noise on embedded tokens: its distribution, its size, and independence of the split.
#include "ops/embedding_noise.h"

#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "ops/dropout.h"

namespace trainer {
namespace {

at::Tensor keys_of_samples(std::vector<int64_t> samples, int64_t seq) {
  for (int64_t& key : samples) key = static_cast<int64_t>(derive(1, static_cast<uint64_t>(key)));
  return row_keys(at::tensor(samples), seq);
}

TEST(EmbeddingNoise, IsUniformUpToItsSize) {
  const at::Tensor keys = keys_of_samples({0, 1, 2, 3}, 512), sizes = at::full({4 * 512}, 0.5F);
  const at::Tensor noise = with_noise(at::zeros({4, 512, 128}), keys, sizes, 9);  // 262,144 draws
  EXPECT_LE(noise.abs().max().item<double>(), 0.5);
  EXPECT_GT(noise.abs().max().item<double>(), 0.4999);
  EXPECT_NEAR(noise.mean().item<double>(), 0, 0.003);
  EXPECT_NEAR(noise.var().item<double>(), 1.0 / 12, 0.001);
  EXPECT_FALSE(noise.equal(with_noise(at::zeros({4, 512, 128}), keys, sizes, 10))) << "another step";
}

TEST(EmbeddingNoise, OfASampleDoesNotDependOnItsCompanyOrPadding) {
  const std::vector<int64_t> lengths{10, 6, 8};
  const at::Tensor padded = with_noise(at::zeros({3, 10, 48}), keys_of_samples({4, 9, 2}, 10),
                                       at::tensor(noise_sizes(lengths, 5, 48, 10)), 5);
  const at::Tensor alone =
      with_noise(at::zeros({1, 6, 48}), keys_of_samples({9}, 6), at::tensor(noise_sizes({6}, 5, 48, 6)), 5);
  EXPECT_TRUE(padded[1].slice(0, 0, 6).equal(alone[0]));
  const std::vector<float> packed = noise_sizes(lengths, 5, 48, 0);
  ASSERT_EQ(packed.size(), 24U);
  EXPECT_FLOAT_EQ(packed[12], static_cast<float>(5 / std::sqrt(6.0 * 48)));
  EXPECT_FLOAT_EQ(packed[16], static_cast<float>(5 / std::sqrt(8.0 * 48)));
}

TEST(EmbeddingNoise, LetsGradientsThrough) {
  at::Tensor x = at::ones({1, 5, 33}).set_requires_grad(true);
  with_noise(x, keys_of_samples({3}, 5), at::ones({5}), 8).sum().backward();
  EXPECT_TRUE(x.grad().equal(at::ones({1, 5, 33})));
}

}  // namespace
}  // namespace trainer
