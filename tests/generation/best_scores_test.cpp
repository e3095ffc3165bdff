#include "generation/best_scores.h"

#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support/reference.h"

namespace trainer {
namespace {

TEST(BestScores, AreThoseThatSortingFinds) {
  Random random{2};
  for (const auto& [searches, beams, vocab, count] :
       std::vector<std::array<int64_t, 4>>{{1, 2, 5, 10}, {3, 4, 1000, 8}, {2, 3, 513, 9}, {5, 2, 256, 4}}) {
    const at::Tensor log_probs = random.normal({searches * beams, vocab});
    log_probs.select(1, 1).fill_(-INFINITY);
    std::vector<float> so_far;
    for (int64_t row = 0; row < searches * beams; row++)
      so_far.push_back(-0.25f * static_cast<float>(row % 3));
    const auto [scores, places] = best_scores(log_probs, so_far, beams, count);
    const at::Tensor all = (log_probs + at::tensor(so_far).unsqueeze(1)).view({searches, -1});
    const at::Tensor sorted =
        std::get<0>(all.sort(/*stable=*/true, 1, /*descending=*/true)).narrow(1, 0, count);
    EXPECT_TRUE(scores.equal(sorted));
    EXPECT_TRUE(all.gather(1, places).equal(scores));
  }
}

TEST(BestScores, OfEqualOnesTheFirstComesFirst) {
  const at::Tensor log_probs = at::zeros({2, 600});
  log_probs[1][17] = 1.0;
  const auto [scores, places] = best_scores(log_probs, {0.0f, 0.0f}, 2, 4);
  EXPECT_TRUE(places.equal(at::tensor({617, 0, 1, 2}, at::kLong).unsqueeze(0)));
}

}  // namespace
}  // namespace trainer
