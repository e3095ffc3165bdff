// Regular expressions on module names, as PEFT interprets them.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "trainer/formats/peft.h"

struct pcre2_real_code_8;

namespace trainer {

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

// `name` itself, or its end after a dot.
bool has_suffix(const std::string& name, const std::string& suffix);

// Whether a pattern of rank_pattern or alpha_pattern matches this module (peft, utils/other.py,
// get_pattern_key).
bool pattern_matches(const std::string& pattern, const std::string& name, const std::string& key);

// The value of the first entry that matches the module, or the fallback.
template <class Value>
Value value_for(const ModulePatterns<Value>& patterns, const std::string& name, const std::string& key,
                Value fallback) {
  for (const auto& [pattern, value] : patterns) {
    if (pattern_matches(pattern, name, key)) return value;
  }
  return fallback;
}

}  // namespace trainer
