// Advice for a run that needs less memory: settings to add to its configuration, with the plan's memory after
// that, an estimate of the time, and how they change the result.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/training/plan.h"
#include "trainer/training/solve_plan.h"

namespace trainer {

struct Saving {
  std::vector<std::string> settings;  // to add: {"memory.offload=[optimizer]"}
  std::string changes;                // about the numbers; empty: the result is the same, up to rounding
  MemoryPlan plan;                    // for the configuration with these settings
  double time = 1.0;                  // estimated, of a step; 1: of the configuration as it is

  bool same_result() const { return changes.empty(); }
};

// The measures for one configuration. Each plan is made once and kept.
class MemoryAdvice {
 public:
  // `start`: what the configuration's plan chose where it leaves something open (PlanChoice::plan).
  // `after_plan` is called after each plan that was made.
  MemoryAdvice(const Config& config, std::filesystem::path model, const PlanTarget& target,
               const MemoryPlan& start, std::function<void()> after_plan = {});

  // Returns single measures that save at least a hundredth of the total. Those with the same result come
  // first; then the fastest.
  std::vector<Saving> single();
  // Returns combinations that need at most `limit` bytes in all, in the same order: at most two with the same
  // result and at most three others. None is listed if a part of it is enough, or if it offloads more than
  // `room` bytes. Empty: nothing fits, or nothing needs to be changed.
  std::vector<Saving> fitting(int64_t limit, int64_t room = std::numeric_limits<int64_t>::max());

 private:
  // The configuration with what changes numbers, if anything does.
  struct Variant {
    unsigned parts = 0;  // bits, of SavingPart in memory_advice.cpp
    std::string changes;
    Config config;
    Planner planner;
    bool possible = true;
  };

  void add_variant(unsigned parts);
  // Returns what `parts` that keep the result make of the start; nullopt if they change nothing about it.
  std::optional<PlanChoice> changed_start(unsigned parts) const;
  double fetch_seconds(const Config& config) const;
  std::optional<Saving> measure(Variant& variant, unsigned exact_parts);
  std::optional<Saving> fitting_at(Variant& variant, unsigned exact_parts, int64_t limit);

  Config config_;  // with numbers in place of auto
  std::filesystem::path model_;
  PlanTarget target_;
  MemoryPlan start_;
  std::function<void()> after_plan_;
  std::vector<Variant> variants_;
};

// Returns lines that say which of these measures, the result of MemoryAdvice::fitting(), make a run fit; ""
// if there are none. The text ends without a newline.
std::string fitting_text(const std::vector<Saving>& measures);

// Returns the same for a run that needs more than `limit` bytes, from a plan of its own. `room`: as above.
// Never throws: "" if nothing fits, or if the plan fails.
std::string what_would_fit(const Config& config, const std::filesystem::path& model, const PlanTarget& target,
                           int64_t limit, int64_t room);

// "[optimizer,weights]"
std::string offload_value(const Offload& offload);

// Returns what makes `from` into `to`, as key=value, for the keys that measures change. Neither configuration
// has auto in them. The effective batch stays as `from` has it.
std::vector<std::string> changed_settings(const Config& from, const Config& to);

}  // namespace trainer
