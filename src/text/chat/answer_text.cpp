#include "trainer/text/answer_text.h"

#include <algorithm>

namespace trainer {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // for an incomplete character

}  // namespace

AnswerText::AnswerText(const Tokenizer& tokenizer, std::vector<std::string> stops, std::vector<int32_t> ends)
    : tokenizer_(tokenizer), stops_(std::move(stops)), ends_(std::move(ends)) {
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

// Decoding piece by piece takes long, but only a text with a stop string is decoded so.
bool AnswerText::ends_inside_special(std::span<const int32_t> ids, const std::string& text,
                                     size_t end) const {
  for (size_t count = ids.size(); count > 0; count--) {
    const std::string before = decode(ids.first(count - 1), false);
    if (before.size() >= end) continue;
    if (!text.starts_with(before)) return false;
    const size_t behind = decode(ids.first(count), false).size();
    return behind > end && decode(ids.subspan(count - 1, 1), true).empty();
  }
  return false;
}

size_t AnswerText::find_stop(std::span<const int32_t> ids, const std::string& text) const {
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) {
    size_t at = text.find(stop);
    while (at < first && ends_inside_special(ids, text, at + stop.size())) at = text.find(stop, at + 1);
    first = std::min(first, at);
  }
  return first;
}

bool AnswerText::stops_at(std::span<const int32_t> ids) const {
  if (stops_.empty()) return false;
  // Nearly every token has at least one byte of text, so this many hold the longest stop string.
  const size_t enough = longest_ + 8;
  const std::span<const int32_t> last = ids.last(std::min(enough, ids.size()));
  return find_stop(last, decode(last, false)) != std::string::npos;
}

std::string AnswerText::text(std::span<const int32_t> ids, bool skip_special_tokens) const {
  const std::string full = decode(ids, false);
  const size_t stop = find_stop(ids, full);
  if (stop == std::string::npos) {
    // Also with special tokens: a target, to which the answer is compared, has no end token.
    const bool ended = !ids.empty() && std::ranges::find(ends_, ids.back()) != ends_.end();
    return decode(ended ? ids.first(ids.size() - 1) : ids, skip_special_tokens);
  }
  // The tokens before it, and the part of the next token that is before it.
  for (size_t count = ids.size(); count > 0; count--) {
    const std::string before = decode(ids.first(count), false);
    if (before.size() > stop || !full.starts_with(before)) continue;
    const bool is_left_out =
        skip_special_tokens && count < ids.size() && decode(ids.subspan(count, 1), true).empty();
    return decode(ids.first(count), skip_special_tokens) +
           (is_left_out ? "" : full.substr(before.size(), stop - before.size()));
  }
  return full.substr(0, stop);
}

size_t AnswerText::shown(const std::string& text) const {
  size_t end = text.size();
  if (tokenizer_.cleans_up_spaces()) {  // the next tokens may take away a blank: "it", "'" and "s" are "it's"
    const size_t blank = text.find_last_of(' ');
    constexpr size_t kLongestPattern = 4;  // " 've"
    if (blank != std::string::npos && text.size() - blank < kLongestPattern) end = blank;
  }
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
