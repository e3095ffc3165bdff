#include "base/shell_word.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace trainer {
namespace {

bool is_plain_in_shell(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) ||
         std::string_view("_-./=:,@%+").find(c) != std::string_view::npos;
}

}  // namespace

std::string shell_word(const std::string& word) {
  if (!word.empty() && std::ranges::all_of(word, is_plain_in_shell)) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace trainer
