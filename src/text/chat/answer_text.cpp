#include "trainer/text/answer_text.h"

#include <algorithm>

namespace trainer {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // for an incomplete character

}  // namespace

AnswerText::AnswerText(const Tokenizer& tokenizer, std::vector<std::string> stops)
    : tokenizer_(tokenizer), stops_(std::move(stops)) {
  for (const std::string& stop : stops_) longest_ = std::max(longest_, stop.size());
}

std::string AnswerText::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::vector<int32_t> known(ids.begin(), ids.end());
  std::erase_if(known, [this](int32_t id) { return id >= tokenizer_.vocab_size(); });
  return tokenizer_.decode(known, skip_special_tokens);
}

std::string AnswerText::as_answer(std::string_view text, bool skip_special_tokens) const {
  return decode(tokenizer_.encode(text, /*add_special_tokens=*/false), skip_special_tokens);
}

size_t AnswerText::find_stop(const std::string& text) const {
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, text.find(stop));
  return first;
}

bool AnswerText::stops_at(std::span<const int32_t> ids) const {
  if (stops_.empty()) return false;
  // Nearly every token has at least one byte of text, so this many hold the longest stop string.
  const size_t enough = longest_ + 8;
  return find_stop(decode(ids.last(std::min(enough, ids.size())), false)) != std::string::npos;
}

std::string AnswerText::text(std::span<const int32_t> ids) const {
  const std::string full = decode(ids, false);
  const size_t stop = find_stop(full);
  if (stop == std::string::npos) return decode(ids, true);
  // The tokens before it, and the part of the next token that is before it.
  for (size_t count = ids.size(); count > 0; count--) {
    const std::string before = decode(ids.first(count), false);
    if (before.size() <= stop && full.starts_with(before))
      return decode(ids.first(count), true) + full.substr(before.size(), stop - before.size());
  }
  return full.substr(0, stop);
}

size_t AnswerText::shown(const std::string& text) const {
  size_t end = text.size();
  while (std::string_view(text).substr(0, end).ends_with(kReplacement)) end -= kReplacement.size();
  for (const std::string& stop : stops_) {
    for (size_t begun = std::min(stop.size() - 1, end); begun > 0; begun--) {
      if (!std::string_view(text).substr(0, end).ends_with(std::string_view(stop).substr(0, begun))) continue;
      end -= begun;
      break;
    }
  }
  return end;
}

}  // namespace trainer
