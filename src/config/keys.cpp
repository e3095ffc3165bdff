#include "config/keys.h"

#include <functional>
#include <regex>

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

using Texts = std::vector<std::string>;

// The words of its type.
Texts words_of_type(const config::Key& key) {
  using namespace config;
  Config config;
  const Field field = key.field(config);
  if (std::holds_alternative<bool*>(field)) return {"true", "false"};
  if (std::holds_alternative<BoolOrAuto*>(field)) return {"auto", "true", "false"};
  if (std::holds_alternative<Recompute*>(field)) return {"fit", "auto", "light", "true", "false"};
  if (std::holds_alternative<CountOrAuto*>(field)) return {"fit", "auto"};
  if (std::holds_alternative<CountOrAll*>(field)) return {"all"};
  if (std::holds_alternative<Offload*>(field)) return {"auto", "optimizer", "weights", "activations"};
  return {};
}

// The words that its pattern has and allows: auto, cpu and cuda of ^(auto|cpu|cuda(:[0-9]+)?)$.
Texts words_of_pattern(const config::Key& key) {
  static const std::regex kWord("[A-Za-z_][A-Za-z0-9_]+");
  Texts words;
  if (key.pattern.empty()) return words;
  const std::regex pattern(key.pattern);
  for (std::sregex_iterator at(key.pattern.begin(), key.pattern.end(), kWord), end; at != end; ++at) {
    if (std::regex_match(at->str(), pattern)) words.push_back(at->str());
  }
  return words;
}

// A number has its default, from which another is easily made.
Texts offered_values(const config::Key& key) {
  for (const Texts& values : {key.choices, key.usual, words_of_type(key), words_of_pattern(key)}) {
    if (!values.empty()) return values;
  }
  const std::string value = config::default_as_yaml(key);
  const bool number = value.find_first_not_of("0123456789.e-") == std::string::npos;
  return number ? Texts{value} : Texts{};
}

}  // namespace

std::vector<KeyValues> all_keys() {
  std::vector<KeyValues> keys;
  for (const config::Section& section : config::schema()) {
    for (const config::Key& key : section.keys)
      keys.push_back(
          {key.section, key.name, offered_values(key), config::key_by_short_name(key.name) != nullptr});
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
        const auto is_so = [&](const State& state) { return holds(state, config); };
        if (std::ranges::all_of(other.states, is_so)) assign(key, YAML::Load(other.yaml), config);
      }
    }
  }
  if (!config.origins.contains(kEvalStrategy))
    config.training.eval_strategy = automatic_eval_strategy(config);
}

std::string default_as_yaml(const Key& key) {
  if (!key.default_word.empty()) return key.default_word;
  const auto& others = key.dependent_defaults;
  return !others.empty() && others[0].states.empty() ? others[0].yaml : value_as_yaml(key, Config{});
}

std::string all_defaults(const Key& key) {
  std::string text = default_as_yaml(key);
  std::vector<std::string> others;
  for (const DependentDefault& other : key.dependent_defaults)
    if (!other.states.empty()) others.push_back(concat(other.yaml, " ", in_words(other)));
  return others.empty() ? text : concat(text, " (", join(others, "; "), ")");
}

std::string default_here(const Key& key, const Config& config) {
  if (key.dependent_defaults.empty()) return value_as_yaml(key, Config{});
  Config unset = config;
  unset.origins.erase(key.full_name());
  set_dependent_defaults(unset);
  return value_as_yaml(key, unset);
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
