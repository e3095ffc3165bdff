// Regular expressions of tokenizer files, run by PCRE2.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct pcre2_real_code_8;
namespace trainer {

// The begin and end of a match, in bytes.
struct Span {
  size_t begin, end;
};

// A pattern in the dialect of the `tokenizers` library (Oniguruma, Ruby syntax, UTF-8). It means the same
// here. Safe to use from several threads at once.
class Regex {
 public:
  // Throws FormatError for a construct whose meaning in PCRE2 is not known to be the same. `where` begins the
  // message ("tokenizer.json: pre_tokenizer"). The best known patterns are run by functions of known_splits.h
  // instead of PCRE2.
  Regex(std::string_view pattern, const std::string& where);
  // The same pattern, always run by PCRE2.
  static Regex by_pcre2(std::string_view pattern, const std::string& where);
  // A pattern that matches exactly `text`, which is not empty.
  static Regex literal(std::string_view text);

  // Appends all matches in `text` (valid UTF-8), from left to right, without overlap. Look-arounds see
  // nothing outside of `text`. Throws DataError when the pattern tries too many ways to match it.
  void find_all(std::string_view text, std::vector<Span>& matches) const;
  // Returns `text` with each match replaced by `content`.
  std::string replace_all(std::string_view text, std::string_view content) const;

 private:
  Regex() = default;
  void (*known_split_)(std::string_view text, std::vector<Span>& matches) = nullptr;
  std::shared_ptr<pcre2_real_code_8> code_;  // unless there is a known_split_
  std::string pattern_;                      // the source of code_, as in the file
  std::string literal_;                      // the text to find, if there is no code_ either
};

// Returns the pattern rewritten for PCRE2.
std::string translate_regex(std::string_view pattern, const std::string& where);

}  // namespace trainer
