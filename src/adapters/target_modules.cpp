#include "adapters/target_modules.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <string>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/peft.h"

namespace trainer {
namespace {

// Regular expressions on module names, as PEFT interprets them.
class ModulePattern {
 public:
  // Throws ConfigError, "KEY: 'PATTERN' is not a regular expression: ...".
  ModulePattern(const std::string& pattern, const std::string& key);

  // Python's re.fullmatch.
  bool matches(const std::string& name) const;
  // The text of the group (?P<idx>...); nothing if the pattern does not match.
  std::optional<std::string> index(const std::string& name) const;

 private:
  std::shared_ptr<pcre2_real_code_8> code_;
};

using MatchData = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;

// The groups of a match; null if there is no match.
MatchData match(const pcre2_code* code, const std::string& text) {
  MatchData data(pcre2_match_data_create_from_pattern(code, nullptr), pcre2_match_data_free);
  const int found =
      pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, data.get(), nullptr);
  if (found < 0) data.reset();
  return data;
}

ModulePattern::ModulePattern(const std::string& pattern, const std::string& key) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_ANCHORED | PCRE2_ENDANCHORED, &error, &offset, nullptr);
  if (code == nullptr) {
    PCRE2_UCHAR text[256];
    pcre2_get_error_message(error, text, sizeof text);
    throw ConfigError(concat(key, ": '", pattern, "' is not a regular expression: ",
                             reinterpret_cast<const char*>(text), " at character ", offset + 1));
  }
  code_.reset(code, pcre2_code_free);
}

bool ModulePattern::matches(const std::string& name) const { return match(code_.get(), name) != nullptr; }

std::optional<std::string> ModulePattern::index(const std::string& name) const {
  const MatchData data = match(code_.get(), name);
  if (data == nullptr) return std::nullopt;
  const int group = pcre2_substring_number_from_name(code_.get(), reinterpret_cast<PCRE2_SPTR>("idx"));
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
  return name.substr(ends[2 * group], ends[2 * group + 1] - ends[2 * group]);
}

// Returns whether it is `name` itself, or its end after a dot.
bool has_suffix(const std::string& name, const std::string& suffix) {
  return name == suffix || name.ends_with("." + suffix);
}

// Returns whether a pattern of rank_pattern or alpha_pattern matches the module (peft, utils/other.py,
// get_pattern_key).
bool pattern_matches(const std::string& pattern, const std::string& name, const std::string& key) {
  return ModulePattern("(.*\\.)?(" + pattern + ")", key).matches(name);
}

// Returns the value of the first entry that matches the module, or the fallback.
template <class Value>
Value value_for(const ModulePatterns<Value>& patterns, const std::string& name, const std::string& key,
                Value fallback) {
  for (const auto& [pattern, value] : patterns) {
    if (pattern_matches(pattern, name, key)) return value;
  }
  return fallback;
}

using Names = std::vector<std::string>;

constexpr const char* kTargets = "lora.target_modules";

// "encoder.block.0.layer.0.SelfAttention.q" -> "q": what a user would write as a target.
std::string matchable(const std::vector<Target>& modules) {
  std::set<std::string> suffixes;
  for (const Target& entry : modules) {
    if (entry.linear != nullptr) suffixes.insert(entry.name.substr(entry.name.rfind('.') + 1));
  }
  suffixes.erase("lm_head");
  return join({suffixes.begin(), suffixes.end()});
}

// An example for messages.
std::string first_linear(const std::vector<Target>& modules) {
  const auto linear =
      std::ranges::find_if(modules, [](const Target& entry) { return entry.linear != nullptr; });
  return linear == modules.end() ? "" : linear->name;
}

// Matches names with a list of suffixes or a regular expression.
class NameMatcher {
 public:
  NameMatcher(const ModuleNames& names, const std::string& key) {
    if (const auto* list = std::get_if<Names>(&names)) {
      suffixes_ = *list;
    } else if (const auto& text = std::get<std::string>(names); !text.empty()) {
      pattern_.emplace(text, key);
    }
  }
  bool matches(const std::string& name) const {
    if (pattern_) return pattern_->matches(name);
    return std::ranges::any_of(suffixes_, [&](const std::string& s) { return has_suffix(name, s); });
  }

 private:
  Names suffixes_;
  std::optional<ModulePattern> pattern_;
};

// Modules that get no adapter, whatever target_modules says.
class LeftOut {
 public:
  explicit LeftOut(const AdapterConfig& config)
      : layers_(config.layers_to_transform), excluded_(config.exclude_modules, "lora.exclude_modules") {
    for (const std::string& module : config.modules_to_save) {
      saved_.emplace_back("(^|.*\\.)" + module + "($|\\..*)", "lora.modules_to_save");
    }
    if (layers_.empty()) return;
    for (const std::string& pattern : config.layers_pattern) {
      layer_of_.emplace_back("(?:^|.*?\\.)" + pattern + "\\.(?P<idx>\\d+)\\..*", "lora.layers_pattern");
    }
    if (layer_of_.empty()) layer_of_.emplace_back(".*?\\.[^.]*\\.(?P<idx>\\d+)\\..*", "lora.layers_pattern");
  }

  bool operator()(const std::string& name) const {
    return excluded_.matches(name) ||
           std::ranges::any_of(saved_, [&](const ModulePattern& saved) { return saved.matches(name); }) ||
           (!layers_.empty() && !in_layers(name));
  }

 private:
  bool in_layers(const std::string& name) const {
    for (const ModulePattern& pattern : layer_of_) {
      const std::optional<std::string> text = pattern.index(name);
      if (!text) continue;
      int64_t index = -1;
      std::from_chars(text->data(), text->data() + text->size(), index);
      return std::ranges::find(layers_, index) != layers_.end();
    }
    return false;
  }

  std::vector<int64_t> layers_;
  NameMatcher excluded_;
  std::vector<ModulePattern> saved_, layer_of_;
};

void check_entries(const std::vector<Target>& modules, const Names& names, const Names& targets) {
  std::vector<std::string> nothing;
  for (const std::string& target : targets) {
    const auto matches = [&](const std::string& name) { return has_suffix(name, target); };
    const auto any = std::ranges::find_if(modules, [&](const Target& entry) { return matches(entry.name); });
    if (any != modules.end()) continue;
    const bool other_kind = std::ranges::any_of(names, matches);
    nothing.push_back(
        concat("'", target, "' matches ",
               other_kind ? "only modules that are neither a linear layer nor an embedding" : "nothing"));
  }
  if (!nothing.empty()) {
    throw ConfigError(concat(kTargets, ": ", join(nothing, "; "),
                             ". Linear layers of this model: ", matchable(modules), "; or all-linear"));
  }
}

std::vector<Target> named(const std::vector<Target>& modules, const ModuleNames& targets) {
  std::vector<Target> found;
  if (targets == ModuleNames("all-linear")) {
    std::ranges::copy_if(modules, std::back_inserter(found), [](const Target& entry) {
      return entry.linear != nullptr && entry.name != "lm_head";
    });
    return found;
  }
  const NameMatcher matcher(targets, kTargets);
  std::ranges::copy_if(modules, std::back_inserter(found),
                       [&](const Target& entry) { return matcher.matches(entry.name); });
  if (found.empty()) {
    const auto* list = std::get_if<Names>(&targets);
    throw ConfigError(concat(kTargets, ": ",
                             list != nullptr ? concat("none of ", join(*list), " matches a linear layer")
                                             : concat("the expression '", std::get<std::string>(targets),
                                                      "' matches no linear layer as a whole"),
                             ". Full names look like '", first_linear(modules),
                             "'; linear layers of this model: ", matchable(modules), "; or all-linear"));
  }
  return found;
}

void check_kind(const Target& target, const AdapterConfig& config) {
  if (target.name == "shared") {
    throw ConfigError(concat(kTargets,
                             ": shared: a T5's encoder and decoder use embed_tokens, so that an adapter on ",
                             "shared would change nothing (as in PEFT); name embed_tokens instead"));
  }
  if (target.embedding != nullptr && config.lora_bias) {
    throw ConfigError(concat("lora.lora_bias: ", target.name, " is an embedding, which cannot have a bias"));
  }
  if (target.name == "lm_head" && config.lora_bias) {
    throw ConfigError("lora.lora_bias: not supported on lm_head");
  }
  if (target.name == "lm_head" && config.use_dora && config.lora_dropout > 0) {
    throw ConfigError("lora.use_dora: not supported on lm_head with lora_dropout; set lora_dropout to 0");
  }
}

template <class Value>
void check_patterns(const ModulePatterns<Value>& patterns, const std::vector<Target>& found,
                    const char* key) {
  for (const auto& [pattern, value] : patterns) {
    if (std::ranges::none_of(
            found, [&, &p = pattern](const Target& entry) { return pattern_matches(p, entry.name, key); })) {
      throw ConfigError(concat(key, ": '", pattern, "' matches no module that gets an adapter; their ",
                               "names look like '", found.front().name, "'"));
    }
  }
}

}  // namespace

std::vector<Target> find_targets(Model& model, const AdapterConfig& config, bool every_entry_matches) {
  std::vector<Target> modules;
  Names names;
  model.for_each_module([&](const std::string& name, Module& module) {
    names.push_back(name);
    auto* linear = dynamic_cast<Linear*>(&module);
    auto* embedding = dynamic_cast<Embedding*>(&module);
    if (linear != nullptr || embedding != nullptr) modules.push_back({name, linear, embedding});
  });
  ModuleNames targets = config.target_modules;
  if (targets == ModuleNames(Names{})) targets = model.default_lora_targets();
  if (const auto* list = std::get_if<Names>(&targets); list != nullptr && every_entry_matches) {
    check_entries(modules, names, *list);
  }
  std::vector<Target> found = named(modules, targets);
  const LeftOut left_out(config);
  std::erase_if(found, [&](const Target& entry) { return left_out(entry.name); });
  if (found.empty()) {
    throw ConfigError(concat(kTargets,
                             ": no module is left after exclude_modules, modules_to_save and "
                             "layers_to_transform; full names look like '",
                             first_linear(modules), "'"));
  }
  for (const Target& entry : found) check_kind(entry, config);
  if (every_entry_matches) {
    check_patterns(config.rank_pattern, found, "lora.rank_pattern");
    check_patterns(config.alpha_pattern, found, "lora.alpha_pattern");
  }
  return found;
}

LoraOptions lora_options(const AdapterConfig& config, const std::string& module) {
  LoraOptions options;
  options.r = value_for(config.rank_pattern, module, "lora.rank_pattern", config.r);
  const double alpha = value_for(config.alpha_pattern, module, "lora.alpha_pattern", config.lora_alpha);
  const double rank = static_cast<double>(options.r);
  options.scale = alpha / (config.use_rslora ? std::sqrt(rank) : rank);
  options.dropout = config.lora_dropout;
  options.dora = config.use_dora;
  options.bias = config.lora_bias;
  return options;
}

}  // namespace trainer
