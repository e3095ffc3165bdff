// Finds what of a text a tokenizer does not give back: T5's makes spaces of line ends and tabs.
#pragma once

#include <array>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "trainer/text/tokenizer.h"

namespace trainer {

// Not safe to use from several threads at once.
class Spelling {
 public:
  explicit Spelling(const Tokenizer& tokenizer);

  // Returns whether every text comes back, as with tokenizers that work on bytes.
  bool keeps_everything() const { return keeps_everything_; }
  // Adds the characters of the text that are lost or changed to `found`; "  " for repeated spaces. What
  // becomes <unk> does not count, and neither does another form of the same character (Unicode's NFC).
  void find_lost(std::string_view text, std::set<std::string>& found);

 private:
  bool is_lost(const std::string& character) const;
  bool is_lost_character(const std::string& character);

  const Tokenizer* tokenizer_;
  bool keeps_everything_ = true, loses_repeated_ = false, keeps_others_ = true;
  std::array<bool, 128> lost_ascii_{};
  std::map<std::string, bool> lost_;  // other characters that were looked up so far
};

}  // namespace trainer
