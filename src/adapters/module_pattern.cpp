#include "adapters/module_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace {

using MatchData = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;

// The groups of a match; null if there is no match.
MatchData match(const pcre2_code* code, const std::string& text) {
  MatchData data(pcre2_match_data_create_from_pattern(code, nullptr), pcre2_match_data_free);
  const int found =
      pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, data.get(), nullptr);
  if (found < 0) data.reset();
  return data;
}

}  // namespace

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

bool has_suffix(const std::string& name, const std::string& suffix) {
  return name == suffix || name.ends_with("." + suffix);
}

bool pattern_matches(const std::string& pattern, const std::string& name, const std::string& key) {
  return ModulePattern("(.*\\.)?(" + pattern + ")", key).matches(name);
}

}  // namespace trainer
