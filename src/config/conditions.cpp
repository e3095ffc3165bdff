#include "config/conditions.h"

#include "trainer/base/strings.h"

#include "config/value.h"

namespace trainer::config {
namespace {

bool has_value(const Config& config, const std::string& key, const std::string& value) {
  return value_as_yaml(*find_key(key), config) == value;
}

// Data to evaluate on are given to be evaluated on.
void settle_eval_strategy(Config& config) {
  if (config.origins.contains("training.eval_strategy") || config.data.eval.empty()) return;
  config.training.eval_strategy =
      config.origins.contains("training.eval_steps") ? IntervalStrategy::steps : IntervalStrategy::epoch;
}

}  // namespace

std::string in_words(const Condition& condition) {
  return concat(condition.holds ? "without " : "with ", condition.key, ": ", condition.value);
}

const Condition* first_unmet(const Key& key, const Config& config) {
  for (const Condition& condition : key.conditions) {
    if (has_value(config, condition.key, condition.value) != condition.holds) return &condition;
  }
  return nullptr;
}

void set_dependent_defaults(Config& config) {
  for (const Section& section : schema()) {
    for (const Key& key : section.keys) {
      if (key.dependent_defaults.empty() || config.origins.contains(key.full_name())) continue;
      reset(key, config);
      for (const DependentDefault& other : key.dependent_defaults) {
        if (has_value(config, other.key, other.value)) assign(key, YAML::Load(other.yaml), config);
      }
    }
  }
  settle_eval_strategy(config);
}

}  // namespace trainer::config
