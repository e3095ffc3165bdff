// What to choose where the configuration leaves it open: how many samples a micro-batch has, and how many
// blocks run again in backward.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/training/plan.h"

namespace trainer {

// A micro-batch and a number of recomputed blocks, with what they need.
struct PlanChoice {
  MemoryPlan plan;
  double cost = 1.0;  // of a step's time, estimated: 1 without recompute and in one micro-batch
};

// Plans of one run in its variants; each is made once.
class Planner {
 public:
  Planner(Config config, std::filesystem::path model, PlanTarget target);

  // With this batch_size and so many recomputed blocks; the effective batch stays what it is.
  const PlanChoice& choice(int64_t batch_size, int64_t recompute_blocks);
  // As the configuration says; what it leaves open counts as batch_size 1 and all blocks.
  const PlanChoice& as_configured();
  // The cheapest that needs at most `limit` bytes in all, of those that the configuration leaves open, or
  // with `whatever` of all; nothing where none does. Sizes are powers of two and that of the effective batch.
  std::optional<PlanChoice> cheapest(int64_t limit, bool whatever);
  // Batch sizes to choose from, and numbers of blocks for a table (none, quarters, all).
  std::vector<int64_t> batch_sizes() const;
  std::vector<int64_t> block_counts();

  // The configuration with a choice in it.
  Config with(const PlanChoice& choice) const;

 private:
  int64_t num_blocks();
  double cost(const MemoryPlan& plan) const;
  std::optional<PlanChoice> fewest_blocks(int64_t batch_size, int64_t most, int64_t limit);
  int64_t most_worthwhile(int64_t batch_size, const std::optional<PlanChoice>& best);

  Config config_;
  std::filesystem::path model_;
  PlanTarget target_;
  int64_t num_blocks_ = 0;  // 0: not asked yet
  std::map<std::pair<int64_t, int64_t>, PlanChoice> made_;
};

}  // namespace trainer
