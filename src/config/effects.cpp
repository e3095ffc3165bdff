#include "config/effects.h"

#include <algorithm>
#include <fstream>
#include <utility>
#include <vector>

#include "trainer/base/strings.h"
#include "trainer/config/load.h"

#include "config/keys.h"
#include "config/model_family.h"
#include "config/value.h"

namespace trainer::config {
namespace {

constexpr const char *kByOverride = "override '", *kTrainingData = "data.train",
                     *kWhenToEvaluate = "training.eval_strategy";

std::string place_set(const Config& config, const std::string& key) {
  const auto found = config.origins.find(key);
  return found == config.origins.end() ? "" : found->second;
}

bool is_override(const std::string& origin) { return origin.starts_with(kByOverride); }

// "my.yaml:3:15" -> "my.yaml" and "3"; an override is a source of its own.
std::pair<std::string, std::string> source_and_line(const std::string& origin) {
  const size_t column = is_override(origin) ? std::string::npos : origin.rfind(':');
  const size_t line = column == std::string::npos ? column : origin.rfind(':', column - 1);
  if (line == std::string::npos) return {origin, ""};
  return {origin.substr(0, line), origin.substr(line + 1, column - line - 1)};
}

// Whether the place of a key is in a file that this program wrote.
bool is_in_dump(const std::string& origin) {
  if (origin.empty() || is_override(origin)) return false;
  std::ifstream file(source_and_line(origin).first);
  std::string line;
  return std::getline(file, line) && line.starts_with(kDumpBegins);
}

// A file that this program wrote has all keys, so that only other values than the default count there.
bool is_given(const Key& key, const Config& config) {
  const std::string origin = place_set(config, key.full_name());
  return !origin.empty() && !(value_as_yaml(key, config) == default_here(key, config) && is_in_dump(origin));
}

// A key whose value is that it is absent.
bool says_absent(const State& state) {
  return state.values.size() == 1 && (state.values[0].empty() || state.values[0] == "null");
}

std::string in_words(const State& state, const std::vector<std::string>& values) {
  if (says_absent(state)) return concat(state.among ? "without " : "with ", state.key);
  if (state.values.empty()) return concat(state.unless_given ? "without " : "with ", state.key);
  if (state.key == "model") return concat(state.among ? "for " : "not for ", join(values, " or "));
  return concat(state.among ? "with " : "without ", state.key, ": ", join(values, " or "));
}

// training.eval_strategy, left to the program: it is data.eval that is missing.
bool waits_for_data(const State& state, const Config& config) {
  return state.key == kWhenToEvaluate && !config.origins.contains(kWhenToEvaluate) &&
         config.data.eval.empty();
}

// A file that names no data, as the presets, is made to be used with others: what it says of evaluations
// waits for data.eval.
bool is_ready_for_data(const std::string& key, const Condition& condition, const Config& config) {
  const std::string origin = place_set(config, key);
  const bool waits = std::ranges::any_of(condition.states,
                                         [&](const State& state) { return waits_for_data(state, config); });
  return waits && !is_override(origin) &&
         source_and_line(origin).first != source_and_line(place_set(config, kTrainingData)).first;
}

// " (my.yaml:3:15 says no)"; of the file in which the key itself stands, only the line.
std::string place_of(const State& state, const std::string& origin, const Config& config) {
  const std::string place = place_set(config, state.key);
  if (place.empty()) return "";
  const auto [source, line] = source_and_line(place);
  const bool same_file = !line.empty() && source == source_and_line(origin).first;
  const Key* key = find_key(state.key);
  const std::string value = state.among || key == nullptr ? "" : " says " + value_as_yaml(*key, config);
  return concat(" (", same_file ? "line " + line : place, value, ")");
}

// "has no effect with save.strategy: no (my.yaml:3:15)", with the values and places of the other keys.
std::string idle_in_words(const Key& key, const Condition& condition, const Config& config) {
  const std::string origin = place_set(config, key.full_name());
  std::vector<std::string> words;
  for (const State& state : condition.states) {
    std::vector<std::string> values = state.values;
    if (state.among)
      std::erase_if(values, [&](const std::string& value) { return !has_value(config, state.key, value); });
    words.push_back(waits_for_data(state, config)
                        ? "without data.eval"
                        : in_words(state, values) + place_of(state, origin, config));
  }
  return concat("has no effect ", join(words, " and "));
}

template <class Use>
void for_each_key(const Use& use) {
  for (const Section& section : schema()) {
    for (const Key& key : section.keys) use(key);
  }
}

}  // namespace

bool has_value(const Config& config, const std::string& name, const std::string& value) {
  if (name == "lora") return (value == "null") != config.lora.has_value();
  if (name == "model") return model_family(config.model.path) == value;
  const std::string yaml = value_as_yaml(*find_key(name), config);
  return yaml == value || yaml == text_as_yaml(value);
}

bool holds(const State& state, const Config& config) {
  if (state.unless_given) return !config.origins.contains(state.key);
  if (state.if_given && !config.origins.contains(state.key)) return false;
  const bool has = std::ranges::any_of(
      state.values, [&](const std::string& value) { return has_value(config, state.key, value); });
  return has == state.among;
}

std::string in_words(const Condition& condition) {
  std::vector<std::string> words;
  for (const State& state : condition.states) words.push_back(in_words(state, state.values));
  return join(words, " and ");
}

std::string in_words(const DependentDefault& other) {
  std::vector<std::string> words;
  for (const State& state : other.states) words.push_back(in_words(state, state.values));
  return join(words, " and ");
}

const Condition* first_idle(const Key& key, const Config& config, std::optional<Idle> kind) {
  for (const Condition& condition : key.conditions) {
    const auto is_so = [&](const State& state) { return holds(state, config); };
    if ((!kind || condition.idle == *kind) && std::ranges::all_of(condition.states, is_so)) return &condition;
  }
  return nullptr;
}

bool is_overridden(const Key& key, const Condition& condition, const Config& config) {
  if (is_override(place_set(config, key.full_name()))) return false;
  const auto place = [&](const State& state) { return place_set(config, state.key); };
  // A state that stands nowhere is a default, which says nothing against the file.
  return std::ranges::all_of(
             condition.states,
             [&](const State& state) { return place(state).empty() || is_override(place(state)); }) &&
         std::ranges::any_of(condition.states, [&](const State& state) { return is_override(place(state)); });
}

Problems contradicting_keys(const Config& config, const std::map<std::string, size_t>& layers) {
  Problems problems;
  for_each_key([&](const Key& key) {
    const std::string name = key.full_name(), origin = place_set(config, name);
    const Condition* idle = first_idle(key, config, Idle::contradicts);
    // What this program wrote of a run is no mistake of the user's.
    if (idle == nullptr || origin.empty() || is_in_dump(origin)) return;
    const bool others_stand = std::ranges::all_of(idle->states, [&](const State& state) {
      return config.origins.contains(state.key) && layers.contains(state.key) && layers.contains(name) &&
             layers.at(state.key) <= layers.at(name);
    });
    if (!others_stand) return;
    const State& other = idle->states.front();
    const std::string cure =
        other.among ? concat("change ", other.key) : concat("write ", other.key, ": ", other.values.front());
    problems.push_back({{origin},
                        name,
                        concat(idle_in_words(key, *idle, config), "; the two contradict each other: ", cure,
                               ", or leave ", name, " out"),
                        ExitCode::usage,
                        ErrorCode::config_conflict});
  });
  return problems;
}

}  // namespace trainer::config

namespace trainer {

std::vector<IdleKey> keys_without_effect(const Config& config) {
  using namespace config;
  std::vector<IdleKey> found;
  for_each_key([&](const Key& key) {
    const std::string name = key.full_name();
    const Condition* idle = first_idle(key, config);
    if (idle == nullptr || !is_given(key, config) || is_ready_for_data(name, *idle, config)) return;
    const bool overridden = is_overridden(key, *idle, config);
    if (idle->idle == Idle::is_refused && !overridden) return;  // an error, which load_config() has told
    const std::string origin = place_set(config, name);
    found.push_back({name, concat(origin, ": ", name, ": ", idle_in_words(key, *idle, config)), overridden});
  });
  return found;
}

}  // namespace trainer
