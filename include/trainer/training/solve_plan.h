// Chooses what the configuration leaves open (auto): the samples of a micro-batch, what is recomputed in
// backward, and what is offloaded.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/training/plan.h"

namespace trainer {

// A micro-batch size, what is recomputed and what is offloaded, with the memory that they need.
struct PlanChoice {
  MemoryPlan plan;
  // Estimated time of a step; 1 is without recompute and offload, and in one micro-batch.
  double cost = 1.0;
};

// The plans of a run for different choices. Each is made once and kept.
class Planner {
 public:
  // `after_plan` is called after each plan that was made.
  Planner(Config config, std::filesystem::path model, PlanTarget target,
          std::function<void()> after_plan = {});

  // Returns the plan with this batch_size and this recompute, or this many recomputed blocks (0: nothing is).
  // The effective batch stays the same. Offloaded is what is given, else what the configuration says (auto:
  // nothing).
  const PlanChoice& choice(int64_t batch_size, const Recompute& recompute, const Offload& offload);
  const PlanChoice& choice(int64_t batch_size, int64_t recompute_blocks, const Offload& offload);
  const PlanChoice& choice(int64_t batch_size, int64_t recompute_blocks);
  // Returns the plan of the configuration. What it leaves open is taken as batch_size 1, all blocks, and
  // all that auto may offload.
  const PlanChoice& as_configured();
  // Returns the cheapest choice that needs at most `limit` bytes in all, or nothing when none does. It keeps
  // what the configuration sets; with `whatever` it may change batch size and blocks too. Batch sizes are
  // powers of two, and the size of the effective batch. More is offloaded only if nothing fits otherwise.
  std::optional<PlanChoice> cheapest(int64_t limit, bool whatever);
  // Returns what may be offloaded, least first: what the configuration says, or what auto tries.
  std::vector<Offload> offload_sets() const;
  // Return the batch sizes to choose from, and what may be recomputed, for a table (nothing, light, quarters
  // of the blocks, all).
  std::vector<int64_t> batch_sizes() const;
  std::vector<Recompute> recomputes();

  // Returns the configuration with this choice filled in.
  Config with(const PlanChoice& choice) const;
  // Returns the estimated seconds of a step with this plan: its arithmetic at an assumed rate, and what is
  // offloaded as if nothing else happened meanwhile (OffloadedPlan::seconds).
  double seconds(const MemoryPlan& plan);

 private:
  struct ModelShape {
    int64_t num_blocks = 0;
    double weights_of_token = 0;  // weights that a token is multiplied with in a forward pass
  };

  const ModelShape& shape();
  double seconds_at_cost_1(const MemoryPlan& plan);
  std::optional<PlanChoice> cheapest_with(const Offload& offload, int64_t limit, bool whatever);
  // The steps of recompute are numbered: 0 nothing, 1 light, then one block more each.
  int64_t last_step() { return shape().num_blocks + 1; }
  static Recompute at_step(int64_t step);
  std::optional<PlanChoice> first_step(int64_t batch_size, int64_t last, const Offload& offload,
                                       int64_t limit);
  int64_t last_worthwhile(int64_t batch_size, const std::optional<PlanChoice>& best);

  Config config_;
  std::filesystem::path model_;
  PlanTarget target_;
  std::function<void()> after_plan_;
  std::optional<ModelShape> shape_;
  std::map<std::tuple<int64_t, Recompute, Offload>, PlanChoice> made_;
};

// Sets MemoryConfig::widen_once, in the configuration and in its plan, if that saves time and the plan still
// needs at most `most` bytes: on a GPU, with recomputed blocks whose weights are in NF4 or FP8.
void widen_once_if_it_fits(Config& config, MemoryPlan& plan, const std::filesystem::path& model,
                           const PlanTarget& target, int64_t most);

struct FilledPlan {
  Config config;
  std::optional<MemoryPlan> plan;  // if the configuration leaves nothing open
  bool gave_way = false;           // a default did
  int64_t usual = 0;               // bytes that the plan needs with the usual numbers, if it is made
};

// Returns the configuration with numbers for training.batch_size and memory.gradient_checkpointing where they
// are `fit`: the usual ones if the plan needs at most `most` bytes with them, else the fastest that fit, or
// if none do, the smallest. `most` 0: not known; the usual ones if they fit into a small GPU, else the
// smallest. What is `auto` stays so.
FilledPlan fill_defaults(const Config& config, const std::filesystem::path& model, const PlanTarget& target,
                         int64_t most, const std::function<void()>& after_plan = {});

}  // namespace trainer
