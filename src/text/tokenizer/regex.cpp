#include "text/tokenizer/regex.h"

#include <algorithm>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "text/tokenizer/known_splits.h"
#include "text/unicode/utf8.h"

namespace trainer {

namespace {

// Far more than a pattern needs to read a text once, and about a second of work for a pattern that tries all
// ways to match the same piece.
void set_limits(pcre2_match_context* context, size_t text_bytes) {
  constexpr uint64_t kLeast = 10'000'000, kPerByte = 100;
  const auto most = static_cast<uint32_t>(std::min<uint64_t>(kLeast + kPerByte * text_bytes, UINT32_MAX));
  pcre2_set_match_limit(context, most);
  pcre2_set_depth_limit(context, most);
  pcre2_set_heap_limit(context, 2 << 20);  // in KiB
}

[[noreturn]] void too_much(const std::string& pattern, std::string_view text, int error) {
  constexpr size_t kShown = 40;
  const size_t shown = text.size() <= kShown ? text.size() : valid_utf8_prefix(text.substr(0, kShown));
  throw DataError(concat("the tokenizer's regular expression '", pattern,
                         "' takes too many steps on a text of ", text.size(), " bytes that begins with '",
                         text.substr(0, shown), text.size() > shown ? "...'" : "'", " (PCRE2 error ", error,
                         "); split the text into shorter ones, or use another tokenizer"));
}

}  // namespace

Regex::Regex(std::string_view pattern, const std::string& where) : known_split_(known_split(pattern)) {
  if (known_split_ == nullptr) *this = by_pcre2(pattern, where);
}

Regex Regex::by_pcre2(std::string_view pattern, const std::string& where) {
  const std::string translated = translate_regex(pattern, where);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                   PCRE2_UCP | PCRE2_UTF, &error, &offset, nullptr);
  if (code == nullptr) {
    PCRE2_UCHAR message[200];
    pcre2_get_error_message(error, message, sizeof message);
    throw FormatError(concat(where, ": the regular expression '", pattern, "' cannot be used: ",
                             reinterpret_cast<const char*>(message), " at offset ", offset));
  }
  Regex regex;
  regex.pattern_ = pattern;
  regex.code_.reset(code, pcre2_code_free);
  // Without a JIT for this machine, pcre2_match interprets the pattern: slower, with the same result.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return regex;
}

Regex Regex::literal(std::string_view text) {
  Regex regex;
  regex.literal_ = text;
  return regex;
}

std::string Regex::replace_all(std::string_view text, std::string_view content) const {
  std::vector<Span> matches;
  find_all(text, matches);
  std::string out;
  size_t done = 0;
  for (const Span& match : matches) {
    out.append(text.substr(done, match.begin - done)).append(content);
    done = match.end;
  }
  return out.append(text.substr(done));
}

void Regex::find_all(std::string_view text, std::vector<Span>& matches) const {
  if (known_split_ != nullptr) return known_split_(text, matches);
  if (!code_) {
    for (size_t at = text.find(literal_); at != std::string_view::npos;) {
      matches.push_back({at, at + literal_.size()});
      at = text.find(literal_, at + literal_.size());
    }
    return;
  }
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  set_limits(context.get(), text.size());
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  for (size_t at = 0; at <= text.size();) {
    const auto match = [&](uint32_t options) {
      return pcre2_match(code_.get(), subject, text.size(), at, options | PCRE2_NO_UTF_CHECK, data.get(),
                         context.get());
    };
    int result = match(0);
    // The interpreter keeps its backtracking points on the heap.
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = match(PCRE2_NO_JIT);
    if (result == PCRE2_ERROR_NOMATCH) return;
    if (result < 0) too_much(pattern_, text.substr(at), result);
    matches.push_back({bounds[0], bounds[1]});
    at = bounds[1];
    if (bounds[1] == bounds[0]) {  // an empty match: continue after the next character
      for (at++; at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;) at++;
    }
  }
}

}  // namespace trainer
