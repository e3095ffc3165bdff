#include "parallel/shard_fetcher.h"

#include <atomic>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support/in_ranks.h"

namespace trainer {
namespace {

constexpr size_t kGroups = 5;
constexpr int64_t kElements = 300'000;

// Group g has two tensors, of ranks g and g + 1 modulo their number; their values tell which they are.
int64_t owner_of(size_t group, size_t tensor, int64_t ranks) {
  return static_cast<int64_t>(group + tensor) % ranks;
}
at::Tensor tensor_of(size_t group, size_t tensor) {
  return at::full({kElements}, static_cast<double>(10 * group + tensor));
}

// A rank's own tensors and its places for those of others.
class Lending {
 public:
  explicit Lending(const Ranks& ranks) : ranks_(ranks), exchange_(ranks, at::kCPU, 0) {
    std::vector<std::vector<OwnedTensor>> groups(kGroups);
    for (size_t g = 0; g < kGroups; g++) {
      for (size_t t = 0; t < 2; t++) {
        const int64_t owner = owner_of(g, t, ranks.count());
        groups[g].push_back({owner == ranks.rank() ? tensor_of(g, t) : at::Tensor(), owner});
      }
    }
    lent_.emplace(ranks, exchange_, at::kCPU, std::move(groups));
  }

  void expect_to_get(size_t group) {
    std::vector<at::Tensor> places{at::zeros({kElements}), at::zeros({kElements})};
    lent_->fetch(group, places, nullptr).get();
    for (size_t t = 0; t < 2; t++) {
      const bool own = owner_of(group, t, ranks_.count()) == ranks_.rank();
      EXPECT_TRUE(own || places[t].equal(tensor_of(group, t))) << group << " " << t;
    }
  }
  ShardFetcher& lent() { return *lent_; }

 private:
  const Ranks& ranks_;
  TensorExchange exchange_;
  std::optional<ShardFetcher> lent_;
};

// Rank 0 fetches nothing, the others fetch other groups, one of them three times as often.
TEST(ShardFetcher, AreFetchedInAnyOrderAndNumber) {
  in_ranks(3, [](const Ranks& ranks) {
    Lending lending(ranks);
    for (int section = 0; section < 3; section++) {
      if (ranks.rank() == 1)
        for (size_t g = 0; g < kGroups; g++) lending.expect_to_get(g);
      if (ranks.rank() == 2)
        for (size_t i = 0; i < 3 * kGroups; i++) lending.expect_to_get((7 * i + 3) % kGroups);
      lending.lent().serve_until_all_end();
    }
  });
}

TEST(ShardFetcher, ArriveWhileTheirRankDoesSomethingElse) {
  in_ranks(2, [](const Ranks& ranks) {
    Lending lending(ranks);
    std::vector<at::Tensor> places{at::zeros({kElements}), at::zeros({kElements})};
    const auto arrived = lending.lent().fetch(2, places, nullptr);
    ranks.all_gather("something else");
    lending.lent().serve_until_all_end();
    arrived.get();
    for (size_t t = 0; t < 2; t++)
      EXPECT_TRUE(owner_of(2, t, 2) == ranks.rank() || places[t].equal(tensor_of(2, t)));
  });
}

TEST(ShardFetcher, OfARankThatIsGoneAreLost) {
  std::atomic<int> lost{0};
  in_ranks(3, [&](const Ranks& ranks) {
    Lending lending(ranks);
    if (ranks.rank() == 1) return ranks.notify_end({1, 9, "gone"});
    EXPECT_THROW(lending.expect_to_get(1), LostRank);
    EXPECT_THROW(lending.lent().serve_until_all_end(), LostRank);
    ranks.notify_end({ranks.rank(), 8, "lost"});
    lost++;
  });
  EXPECT_EQ(lost, 2);
}

}  // namespace
}  // namespace trainer
