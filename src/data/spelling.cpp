#include "data/spelling.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "text/tokenizer/normalizer.h"

namespace trainer {
namespace {

constexpr const char* kTwoSpaces = "  ";

// Characters that normalizers change. If these come back, all others do, too.
constexpr std::array<const char*, 12> kProbes{"\u00a0", "\u00ad", "\u00b2", "\u0132", "\u017f", "\u200b",
                                              "\u2026", "\u212b", "\u3000", "\ufb01", "\uff21", "\ufeff"};

bool gives_letters_back(const Tokenizer& tokenizer) {
  const std::vector<int32_t> ids = tokenizer.encode("a", /*add_special_tokens=*/false);
  return tokenizer.decode(ids, /*skip_special_tokens=*/false).find('a') != std::string::npos;
}

}  // namespace

Spelling::Spelling(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {
  if (!gives_letters_back(tokenizer)) return;  // nothing can be found out
  for (char c = 1; c > 0 && c < 127; c++)
    lost_ascii_[static_cast<size_t>(c)] = c != ' ' && is_lost(std::string(1, c));
  loses_repeated_ = is_lost(kTwoSpaces);
  keeps_others_ = std::ranges::none_of(kProbes, [this](const char* probe) { return is_lost(probe); });
  keeps_everything_ =
      keeps_others_ && !loses_repeated_ && std::ranges::find(lost_ascii_, true) == lost_ascii_.end();
}

// Looks at the character between letters: at the ends of a text, tokenizers drop blanks.
bool Spelling::is_lost(const std::string& character) const {
  const std::string text = "a" + character + "a";
  const std::vector<int32_t> ids = tokenizer_->encode(text, /*add_special_tokens=*/false);
  if (const auto unknown = tokenizer_->unk_id(); unknown && std::ranges::find(ids, *unknown) != ids.end())
    return false;
  std::string back = tokenizer_->decode(ids, /*skip_special_tokens=*/false);
  back.erase(0, back.find_first_not_of(' '));  // some add one
  return back.find(character) == std::string::npos &&
         to_normal_form(back, NormalForm::c) != to_normal_form(text, NormalForm::c);
}

bool Spelling::is_lost_character(const std::string& character) {
  const auto [place, first_time] = lost_.try_emplace(character, false);
  if (first_time) place->second = is_lost(character);
  return place->second;
}

void Spelling::find_lost(std::string_view text, std::set<std::string>& found) {
  if (keeps_everything_) return;
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < lost_ascii_.size()) {
      if (lost_ascii_[byte]) found.insert(std::string(1, text[at]));
      if (loses_repeated_ && byte == ' ' && text.substr(at, 2) == kTwoSpaces) found.insert(kTwoSpaces);
      at++;
      continue;
    }
    const std::string_view character = text.substr(at, character_length(text, at));
    if (!keeps_others_ && is_lost_character(std::string(character))) found.insert(std::string(character));
    at += character.size();
  }
}

}  // namespace trainer
