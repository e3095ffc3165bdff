#include "config/keys.h"

#include <functional>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "config/effects.h"
#include "config/schema.h"
#include "config/value.h"

namespace trainer {
namespace {

std::vector<std::string> keys_where(const std::function<bool(const config::Key&)>& holds) {
  std::vector<std::string> names;
  for (const config::Section& section : config::schema()) {
    for (const config::Key& key : section.keys) {
      if (holds(key)) names.push_back(key.full_name());
    }
  }
  return names;
}

}  // namespace

std::vector<KeyValues> all_keys() {
  std::vector<KeyValues> keys;
  Config config;
  for (const config::Section& section : config::schema()) {
    for (const config::Key& key : section.keys) {
      std::vector<std::string> values = key.choices;
      if (std::holds_alternative<bool*>(key.field(config))) values = {"true", "false"};
      keys.push_back({key.section, key.name, std::move(values), config::keys_named(key.name).size() == 1});
    }
  }
  return keys;
}

}  // namespace trainer

namespace trainer::config {
namespace {

constexpr const char *kEvalStrategy = "training.eval_strategy", *kEvalSteps = "training.eval_steps";

// Data to evaluate on are given to be evaluated on.
IntervalStrategy automatic_eval_strategy(const Config& config) {
  if (config.data.eval.empty()) return IntervalStrategy::no;
  return config.origins.contains(kEvalSteps) ? IntervalStrategy::steps : IntervalStrategy::epoch;
}

bool evaluates_by_default(const Config& config) {
  return !config.origins.contains(kEvalStrategy) &&
         config.training.eval_strategy == automatic_eval_strategy(config);
}

}  // namespace

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
  if (!config.origins.contains(kEvalStrategy))
    config.training.eval_strategy = automatic_eval_strategy(config);
}

bool is_automatic(const Key& key, const Config& config) {
  return key.full_name() == kEvalStrategy && evaluates_by_default(config);
}

bool stays_unsaid(const Key& key, const Config& config) {
  return key.full_name() == kEvalSteps && evaluates_by_default(config) &&
         config.training.eval_strategy != IntervalStrategy::steps;
}

}  // namespace trainer::config

namespace trainer {

std::vector<std::string> keys_marked(OnResume mark) {
  return keys_where([mark](const config::Key& key) { return key.on_resume == mark; });
}

std::vector<std::string> keys_of_section(const std::string& section) {
  return keys_where([&](const config::Key& key) { return key.section == section; });
}

OnResume on_resume(const std::string& name) {
  const config::Key* key = config::find_key(name);
  if (key == nullptr) throw ConfigError(concat(name, " is no key"));
  return key->on_resume;
}

}  // namespace trainer
