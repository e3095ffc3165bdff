#include "trainer/models/target_modules.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <algorithm>
#include <pcre2.h>
#include <set>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace {

bool has_suffix(const std::string& name, const std::string& target) {
  return name == target || name.ends_with("." + target);
}

// Python's re.fullmatch of one pattern.
class FullMatch {
 public:
  explicit FullMatch(const std::string& pattern) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                          PCRE2_ANCHORED | PCRE2_ENDANCHORED, &error, &offset, nullptr);
    if (code_ == nullptr) {
      PCRE2_UCHAR text[256];
      pcre2_get_error_message(error, text, sizeof text);
      throw ConfigError(concat("lora.target_modules: '", pattern, "' is no regular expression: ",
                               reinterpret_cast<const char*>(text), " at character ", offset + 1));
    }
    match_ = pcre2_match_data_create_from_pattern(code_, nullptr);
  }
  FullMatch(const FullMatch&) = delete;
  FullMatch& operator=(const FullMatch&) = delete;
  ~FullMatch() {
    pcre2_match_data_free(match_);
    pcre2_code_free(code_);
  }
  bool operator()(const std::string& text) const {
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, match_,
                       nullptr) >= 0;
  }

 private:
  pcre2_code* code_;
  pcre2_match_data* match_;
};

// "encoder.block.0.layer.0.SelfAttention.q" -> "q": what a user would write as target.
std::string matchable(const std::vector<NamedLinear>& linears) {
  std::set<std::string> suffixes;
  for (const NamedLinear& entry : linears) suffixes.insert(entry.name.substr(entry.name.rfind('.') + 1));
  suffixes.erase("lm_head");
  return join({suffixes.begin(), suffixes.end()});
}

std::vector<NamedLinear> match_list(const std::vector<NamedLinear>& linears,
                                    const std::vector<std::string>& names,
                                    const std::vector<std::string>& targets) {
  std::vector<std::string> nothing;
  std::vector<NamedLinear> found;
  for (const std::string& target : targets) {
    const auto matches = [&](const std::string& name) { return has_suffix(name, target); };
    const auto any =
        std::ranges::find_if(linears, [&](const NamedLinear& entry) { return matches(entry.name); });
    if (any != linears.end()) continue;
    const bool other_kind = std::ranges::any_of(names, matches);
    nothing.push_back(
        concat("'", target, "' matches ", other_kind ? "only modules that are no linear layer" : "nothing"));
  }
  if (!nothing.empty()) {
    throw ConfigError(concat("lora.target_modules: ", join(nothing, "; "),
                             ". Linear layers of this model: ", matchable(linears), "; or all-linear"));
  }
  for (const NamedLinear& entry : linears) {
    if (std::ranges::any_of(targets, [&](const std::string& t) { return has_suffix(entry.name, t); })) {
      found.push_back(entry);
    }
  }
  return found;
}

}  // namespace

std::vector<NamedLinear> find_targets(Model& model, const TargetModules& targets) {
  std::vector<NamedLinear> linears, found;
  std::vector<std::string> names;
  model.for_each_module([&](const std::string& name, Module& module) {
    names.push_back(name);
    if (auto* linear = dynamic_cast<Linear*>(&module)) linears.push_back({name, linear});
  });
  if (const auto* list = std::get_if<std::vector<std::string>>(&targets)) {
    found = match_list(linears, names, *list);
  } else if (const std::string& pattern = std::get<std::string>(targets); pattern == "all-linear") {
    std::ranges::copy_if(linears, std::back_inserter(found),
                         [](const NamedLinear& entry) { return entry.name != "lm_head"; });
  } else {
    const FullMatch matches(pattern);
    std::ranges::copy_if(linears, std::back_inserter(found),
                         [&](const NamedLinear& entry) { return matches(entry.name); });
    if (found.empty()) {
      throw ConfigError(concat("lora.target_modules: the expression '", pattern,
                               "' matches no linear layer as a whole. Full names look like '",
                               linears.front().name, "'; linear layers of this model: ", matchable(linears),
                               "; or all-linear"));
    }
  }
  for (const NamedLinear& entry : found) {
    if (entry.name == "lm_head") {
      throw ConfigError(
          "lora.target_modules: an adapter on lm_head is not supported; train it whole with "
          "lora.modules_to_save: [lm_head]");
    }
  }
  return found;
}

}  // namespace trainer
