// Packed tokens in groups and back: nothing is lost, and neither are gradients.
#include "nn/grouped_rows.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support/reference.h"

namespace trainer {
namespace {

// Samples of 2, 4 and 1 tokens that lie one after another: the first two in one group.
AttentionGroups two_groups() {
  AttentionGroup pair, single;
  pair.samples = 2;
  pair.queries = {4, at::arange(6), at::tensor({0, 1, 4, 5, 6, 7}, at::kLong)};
  single.samples = 1;
  single.queries = {1, at::tensor({6}, at::kLong), at::tensor({0}, at::kLong)};
  return std::make_shared<const std::vector<AttentionGroup>>(std::vector<AttentionGroup>{pair, single});
}

TEST(GroupedRows, ComeBackToTheirPlacesWithTheirGradients) {
  Random random(3);
  const at::Tensor x = random.normal({1, 7, 3, 8}).transpose(1, 2).detach().requires_grad_();
  const std::vector<at::Tensor> parts = in_groups(x, two_groups(), GroupSide::queries);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].sizes(), (std::vector<int64_t>{2, 3, 4, 8}));
  EXPECT_TRUE(parts[0][1].equal(x[0].narrow(1, 2, 4)));
  EXPECT_EQ(parts[0][0].narrow(1, 2, 2).abs().max().item<float>(), 0);  // padding
  const at::Tensor out = out_of_groups({parts[0] * 2, parts[1] * 3}, two_groups(), 7, x.scalar_type());
  EXPECT_TRUE(out.narrow(2, 0, 6).equal(x.narrow(2, 0, 6) * 2));
  EXPECT_TRUE(out.narrow(2, 6, 1).equal(x.narrow(2, 6, 1) * 3));
  const at::Tensor g = random.normal({1, 3, 7, 8});
  out.backward(g);
  EXPECT_TRUE(x.grad().narrow(2, 0, 6).equal(g.narrow(2, 0, 6) * 2));
  EXPECT_TRUE(x.grad().narrow(2, 6, 1).equal(g.narrow(2, 6, 1) * 3));
}

}  // namespace
}  // namespace trainer
