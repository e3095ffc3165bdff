#include "trainer/config/load.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "config/effects.h"
#include "config/foreign_keys.h"
#include "config/keys.h"
#include "config/layer.h"
#include "config/presets.h"
#include "config/schema.h"
#include "config/value.h"
#include "config/webhook.h"

namespace trainer {
namespace config {
namespace {

void apply_section(const Setting& setting, Config& config, Problems& problems) {
  const Section& section = *find_section(setting.section);
  if (!setting.value.IsMap() && !setting.value.IsNull()) {
    const std::string advice =
        setting.value.IsScalar() ? advice_for_value(setting.section, setting.value.Scalar()) : "";
    problems.push_back({setting.where_value, setting.section,
                        concat("is a section: expected keys inside it, found ", describe(setting.value),
                               advice.empty() ? "" : "; ", advice)});
    return;
  }
  if (!section.optional) return;
  // The only optional section is `lora`.
  if (setting.value.IsMap()) {
    if (!config.lora) config.lora.emplace();
    config.origins[section.name] = setting.where_key.text();
    return;
  }
  config.lora.reset();
  std::erase_if(config.origins, [&](const auto& origin) {
    return origin.first == section.name || origin.first.starts_with(section.name + ".");
  });
}

bool asks_for_default(const Key& key, const YAML::Node& value) {
  return !key.default_word.empty() && value.IsScalar() && value.Scalar() == key.default_word;
}

std::string full_name(const Setting& setting) {
  return setting.section.empty() ? setting.name : setting.section + "." + setting.name;
}

void apply_key(const Setting& setting, Config& config, Problems& problems) {
  const Key* key = find_key(setting.section, setting.name);
  if (key == nullptr) {
    const std::string name = full_name(setting);
    const std::string advice =
        setting.value.IsScalar() ? advice_for_value(setting.name, setting.value.Scalar()) : "";
    problems.push_back(
        {setting.where_key, name,
         advice.empty() ? unknown_key(setting.section, setting.name) : "unknown key; " + advice,
         ExitCode::usage, ErrorCode::config_key});
    return;
  }
  const bool takes_back = setting.takes_back && (config.lora || setting.section != "lora");
  if (takes_back || asks_for_default(*key, setting.value)) {
    reset(*key, config);
    config.origins.erase(key->full_name());
    return;
  }
  if (const auto message = assign(*key, setting.value, config)) {
    problems.push_back({setting.where_value, key->full_name(), *message});
  }
  config.origins[key->full_name()] = setting.where_value.text();
}

// Of two alternatives, the one that a layer sets takes back what an earlier layer said of the other.
void take_back_alternatives(const Layer& layer, Config& config) {
  std::set<std::string> set_here;
  for (const Setting& setting : layer) {
    if (!setting.value.IsNull()) set_here.insert(setting.section + "." + setting.name);
  }
  for (const auto& [first, second] : alternatives()) {
    for (const auto& [chosen, other] : {std::pair(first, second), std::pair(second, first)}) {
      if (!set_here.contains(chosen) || set_here.contains(other)) continue;
      reset(*find_key(other), config);
      config.origins.erase(other);
    }
  }
}

void apply(const Layer& layer, Config& config, Problems& problems) {
  take_back_alternatives(layer, config);
  for (const Setting& setting : layer) {
    setting.name.empty() ? apply_section(setting, config, problems) : apply_key(setting, config, problems);
  }
}

// Problems of checks that concern a key whose value could not even be read say nothing new.
void add_new(const Problems& found, Problems& problems) {
  std::set<std::string> known;
  for (const Problem& problem : problems) known.insert(problem.key);
  for (const Problem& problem : found) {
    if (!known.contains(problem.key)) problems.push_back(problem);
  }
}

// File by file in the order they were read, top to bottom; then what has no line.
void sort_by_place(Problems& problems) {
  std::vector<std::string> sources;
  for (const Problem& problem : problems) {
    if (problem.where.line > 0) sources.push_back(problem.where.source);
  }
  const auto rank = [&](const Problem& problem) {
    const auto source = problem.where.line > 0
                            ? std::find(sources.begin(), sources.end(), problem.where.source)
                            : sources.end();
    return std::tuple(source, problem.where.line, problem.where.column);
  };
  std::stable_sort(problems.begin(), problems.end(),
                   [&](const Problem& a, const Problem& b) { return rank(a) < rank(b); });
}

// A short name means the same key as in an override.
void name_in_full(std::vector<std::string>& names) {
  for (std::string& name : names) {
    const Key* key = find_key(name) == nullptr ? key_by_short_name(name) : nullptr;
    if (key != nullptr) name = key->full_name();
  }
}

struct Loaded {
  Config config;
  Problems problems;
  bool files_are_readable = true;  // else it is not known which keys are missing
};

Loaded load(const std::optional<std::filesystem::path>& file, const std::vector<std::string>& overrides) {
  Loaded loaded;
  std::vector<Layer> layers;
  if (file) layers = read_layers(*file, loaded.problems);
  for (const Problem& problem : loaded.problems) loaded.files_are_readable &= !problem.key.empty();
  layers.push_back(read_overrides(overrides, loaded.problems));
  std::map<std::string, size_t> layer_of;
  for (size_t i = 0; i < layers.size(); i++) {
    apply(layers[i], loaded.config, loaded.problems);
    for (const Setting& setting : layers[i]) layer_of[full_name(setting)] = i;
  }
  set_dependent_defaults(loaded.config);
  loaded.config.data.chat_template = chat_template_file(loaded.config.data.chat_template);
  name_in_full(loaded.config.resume_changed);
  sort_by_place(loaded.problems);
  add_new(contradictions(loaded.config), loaded.problems);
  add_new(contradicting_keys(loaded.config, layer_of), loaded.problems);
  return loaded;
}

void throw_if_any(const Problems& problems) {
  if (problems.empty()) return;
  const bool same =
      std::ranges::all_of(problems, [&](const Problem& p) { return p.code == problems[0].code; });
  const ExitCode code = same ? problems[0].code : ExitCode::usage;
  const bool one_family =
      std::ranges::all_of(problems, [&](const Problem& p) { return p.family == problems[0].family; });
  const ErrorCode family = one_family ? problems[0].family : ErrorCode::usage;
  if (problems.size() == 1) throw of_family(family, ConfigError(problems[0].text(), code));
  std::string message = concat(problems.size(), " problems in the configuration:");
  for (const Problem& problem : problems) message += "\n  " + problem.text();
  throw of_family(family, ConfigError(message, code));
}

}  // namespace
}  // namespace config

Config load_config(const std::optional<std::filesystem::path>& file,
                   const std::vector<std::string>& overrides) {
  config::Loaded loaded = config::load(file, overrides);
  config::throw_if_any(loaded.problems);
  return std::move(loaded.config);
}

Config load_training_config(const std::optional<std::filesystem::path>& file,
                            const std::vector<std::string>& overrides,
                            const std::function<void(Config&)>& resolve_names) {
  config::Loaded loaded = config::load(file, overrides);
  const bool names_stay = resolve_names && !loaded.problems.empty();
  if (resolve_names && !names_stay) resolve_names(loaded.config);
  if (loaded.files_are_readable)
    config::add_new(config::missing_for_training(loaded.config, names_stay), loaded.problems);
  config::throw_if_any(loaded.problems);
  return std::move(loaded.config);
}

std::vector<std::string> key_names() {
  std::vector<std::string> names;
  for (const config::Section& section : config::schema()) {
    for (const config::Key& key : section.keys) names.push_back(key.full_name());
  }
  return names;
}

std::vector<std::string> changed_keys(const Config& config) {
  std::vector<std::string> names;
  for (const std::string& name : key_names()) {
    const config::Key& key = *config::find_key(name);
    const bool shows_lora = config.lora && name == "lora.r", has_none = !config.lora && key.section == "lora";
    if (shows_lora || (!has_none && value_text(config, name) != config::default_here(key, config)))
      names.push_back(name);
  }
  return names;
}

std::string value_text(const Config& config, const std::string& name) {
  const config::Key* key = config::find_key(name);
  if (key == nullptr) throw ConfigError(concat(name, " is not a key"));
  if (name == "notify.webhook") return config::text_as_yaml(shown_webhook(config.notify.webhook));
  return key->section == "lora" && !config.lora ? "null" : config::value_as_yaml(*key, config);
}

std::vector<TrainingProblem> problems_for_training(const Config& checked) {
  config::Problems problems = config::contradictions(checked);
  config::add_new(config::missing_for_training(checked), problems);
  std::vector<TrainingProblem> out;
  for (const config::Problem& problem : problems) out.push_back({problem.key, problem.text(), problem.code});
  return out;
}

std::vector<std::string> check_for_training(const Config& checked) {
  std::vector<std::string> messages;
  for (const TrainingProblem& problem : problems_for_training(checked)) messages.push_back(problem.text);
  return messages;
}

}  // namespace trainer
