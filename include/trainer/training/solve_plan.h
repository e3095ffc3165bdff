// Chooses what the configuration leaves open (auto): the samples of a micro-batch, and the number of blocks
// that are recomputed in backward.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/training/plan.h"

namespace trainer {

// A micro-batch size and a number of recomputed blocks, with the memory that they need.
struct PlanChoice {
  MemoryPlan plan;
  double cost = 1.0;  // estimated time of a step; 1 is without recompute and in one micro-batch
};

// The plans of a run for different choices. Each is made once and kept.
class Planner {
 public:
  Planner(Config config, std::filesystem::path model, PlanTarget target);

  // Returns the plan with this batch_size and this many recomputed blocks. The effective batch stays the
  // same.
  const PlanChoice& choice(int64_t batch_size, int64_t recompute_blocks);
  // Returns the plan of the configuration. What it leaves open is taken as batch_size 1 and all blocks.
  const PlanChoice& as_configured();
  // Returns the cheapest choice that needs at most `limit` bytes in all, or nothing when none does. It keeps
  // what the configuration sets; with `whatever` it may change that too. Batch sizes are powers of two, and
  // the size of the effective batch.
  std::optional<PlanChoice> cheapest(int64_t limit, bool whatever);
  // Return the batch sizes to choose from, and the numbers of blocks for a table (none, quarters, all).
  std::vector<int64_t> batch_sizes() const;
  std::vector<int64_t> block_counts();

  // Returns the configuration with this choice filled in.
  Config with(const PlanChoice& choice) const;

 private:
  int64_t num_blocks();
  double cost(const MemoryPlan& plan) const;
  std::optional<PlanChoice> fewest_blocks(int64_t batch_size, int64_t most, int64_t limit);
  int64_t most_worthwhile(int64_t batch_size, const std::optional<PlanChoice>& best);

  Config config_;
  std::filesystem::path model_;
  PlanTarget target_;
  int64_t num_blocks_ = 0;  // 0: not known yet
  std::map<std::pair<int64_t, int64_t>, PlanChoice> made_;
};

}  // namespace trainer
