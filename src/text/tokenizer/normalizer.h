// What a tokenizer does to text before splitting it into words.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/regex.h"

namespace trainer {

struct AlignedText;

// Unicode's normal forms, limited to the characters that the `tokenizers` library normalizes.
enum class NormalForm { c, d, kc, kd };

// A list of steps, applied in the order in which they were added. Safe to use from several threads at once.
class Normalizer {
 public:
  void add(NormalForm form) { steps_.emplace_back(form); }
  void add(Charsmap charsmap) { steps_.emplace_back(std::move(charsmap)); }
  // Adds `text` at the front, unless the text to normalize is empty.
  void add_prepend(std::string text) { steps_.emplace_back(Prepend{std::move(text)}); }
  void add_replace(Regex pattern, std::string content) {
    steps_.emplace_back(Replace{std::move(pattern), std::move(content)});
  }
  // Removes white space at the ends.
  void add_strip(bool left, bool right) { steps_.emplace_back(Strip{left, right}); }
  void add_lowercase() { steps_.emplace_back(Lowercase{}); }
  // Removes all combining marks.
  void add_strip_accents() { steps_.emplace_back(StripAccents{}); }

  // Returns the normalized text: `text` itself (valid UTF-8) if nothing changes, or a view into `storage`.
  std::string_view normalize(std::string_view text, std::string& storage) const;
  // Returns the same with the range in `text` that each byte comes from.
  AlignedText align(std::string_view text) const;

 private:
  struct Prepend {
    std::string text;
  };
  struct Replace {
    Regex pattern;
    std::string content;
  };
  struct Strip {
    bool left, right;
  };
  struct Lowercase {};
  struct StripAccents {};
  std::vector<std::variant<NormalForm, Charsmap, Prepend, Replace, Strip, Lowercase, StripAccents>> steps_;
};

// Returns `text` (valid UTF-8) in a normal form.
std::string to_normal_form(std::string_view text, NormalForm form);
// Returns false when `text` is certainly in this normal form already. This is quick for most text.
bool may_change(std::string_view text, NormalForm form);

}  // namespace trainer
