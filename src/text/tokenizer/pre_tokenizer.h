// Splits text into words, which the model then turns into ids.
#pragma once

#include <array>
#include <deque>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/tokenizer/regex.h"

namespace trainer {

// The fate of a pattern's matches when text is split at them (names: SplitDelimiterBehavior of the
// `tokenizers` library).
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

enum class PrependScheme { always, first, never };

// A list of steps, applied in the order in which they were added. Safe to use from several threads at once.
class PreTokenizer {
 public:
  // Splits at matches; with `invert` the text between matches counts as matched.
  void add_split(Regex regex, SplitBehavior behavior, bool invert) {
    steps_.emplace_back(Split{std::move(regex), behavior, invert});
  }
  // Splits at single characters for which `matches` is true.
  void add_split(bool (*matches)(char32_t), SplitBehavior behavior) {
    steps_.emplace_back(CharacterSplit(matches, behavior));
  }
  // Keeps runs of word characters, and runs of other characters that are not white space.
  void add_whitespace() { steps_.emplace_back(Whitespace{}); }
  // Puts a space in front of each part so far, unless it begins with one.
  void add_prefix_space() { steps_.emplace_back(PrefixSpace{}); }
  // Replaces each space by `replacement`, and adds one in front if there is none (scheme `first`: only at the
  // start of the whole text). With `split`, splits before each.
  void add_metaspace(std::string replacement, PrependScheme scheme, bool split) {
    steps_.emplace_back(Metaspace{std::move(replacement), scheme, split});
  }

  // Returns whether a sign is added at the start of the whole text alone.
  bool adds_sign_at_start() const;
  // Returns the sign that stands for a space in words; "" if it is a space itself.
  std::string_view sign_of_blanks() const;
  // Returns whether spaces are removed from words before the signs are added in front of them.
  bool drops_blanks() const;

  // Returns the words, none of them empty. They point into `text` or into `storage`. `at_start`: nothing
  // comes before `text`.
  std::vector<std::string_view> words(std::string_view text, bool at_start,
                                      std::deque<std::string>& storage) const;

 private:
  struct Split {
    Regex regex;
    SplitBehavior behavior;
    bool invert;
  };
  struct CharacterSplit {
    CharacterSplit(bool (*matches_character)(char32_t), SplitBehavior what_becomes_of_them)
        : matches(matches_character), behavior(what_becomes_of_them) {
      for (size_t c = 0; c < matches_ascii.size(); c++) matches_ascii[c] = matches(static_cast<char32_t>(c));
    }
    bool (*matches)(char32_t);
    SplitBehavior behavior;
    std::array<bool, 128> matches_ascii{};
  };
  struct Whitespace {};
  struct PrefixSpace {};
  struct Metaspace {
    std::string replacement;
    PrependScheme scheme;
    bool split;
  };
  struct Parts;

  static void apply(const Split& split, Parts& parts);
  static void apply(const CharacterSplit& split, Parts& parts);
  static void apply(const Whitespace&, Parts& parts);
  static void apply(const PrefixSpace&, Parts& parts);
  static void apply(const Metaspace& metaspace, Parts& parts);

  std::vector<std::variant<Split, CharacterSplit, Whitespace, PrefixSpace, Metaspace>> steps_;
};

}  // namespace trainer
