// Cuts text into the words that BPE is applied to.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/regex.h"

namespace trainer {

class PreTokenizer {
 public:
  enum class Keep { all, matches, gaps };

  // Cuts before and behind each match; keeps these parts.
  void add_split(Regex regex, Keep keep) { steps_.emplace_back(Split{std::move(regex), keep}); }
  // Puts a blank in front of each part so far, unless it begins with one.
  void add_prefix_space() { steps_.emplace_back(PrefixSpace{}); }

  // The words, none of them empty. They point into `text` or into `storage`.
  std::vector<std::string_view> words(std::string_view text, std::deque<std::string>& storage) const;

 private:
  struct Split {
    Regex regex;
    Keep keep;
  };
  struct PrefixSpace {};
  std::vector<std::variant<Split, PrefixSpace>> steps_;
};

}  // namespace trainer
