// Normalizer::from_first_character(): where a normalized text still counts as the start of the whole text.
#include <algorithm>

#include "base/utf8.h"
#include "text/tokenizer/normalizer.h"

namespace trainer {
namespace {

// Of a text whose first `before` bytes come from the first character, how many do after a replacement. The
// `tokenizers` library gives what is put in the place of the last character that it replaces.
size_t after_replacement(size_t before, const std::vector<Span>& matches, size_t content) {
  size_t done = 0, after = 0;
  for (const Span& match : matches) {
    if (match.begin >= before && match.end > 0) break;
    after += match.begin - done;
    if (match.end > before) return after;
    after += content;
    done = match.end;
  }
  return after + (before - std::min(done, before));
}

}  // namespace

size_t Normalizer::from_first_character(std::string_view text) const {
  if (text.empty()) return 0;
  std::string now(text);
  size_t count = character_length(now, 0);
  for (const auto& step : steps_) {
    if (now.empty() || count == 0) return 0;
    const std::string begin = now.substr(0, count);
    std::string next, storage;
    if (const auto* form = std::get_if<NormalForm>(&step)) {
      next = to_normal_form(now, *form);
      count = std::max(character_length(next, 0), to_normal_form(begin, *form).size());
    } else if (const auto* charsmap = std::get_if<Charsmap>(&step)) {
      next = charsmap->normalize(now);
      // Where the first character is left out, the library takes the next one for it.
      if (!next.empty()) count = std::max(character_length(next, 0), charsmap->normalize(begin).size());
    } else if (const auto* prepend = std::get_if<Prepend>(&step)) {
      next = prepend->text + now;
      count += prepend->text.size();
    } else if (const auto* replace = std::get_if<Replace>(&step)) {
      std::vector<Span> matches;
      replace->pattern.find_all(now, matches);
      next = replace->pattern.replace_all(now, replace->content);
      count = after_replacement(count, matches, replace->content.size());
    } else {  // characters that stand for themselves or were left out
      Normalizer only;
      only.steps_.push_back(step);
      next = only.normalize(now, storage);
      if (std::holds_alternative<Strip>(step)) {
        const size_t left_out = next.empty() ? count : std::min(count, now.find(next));
        count -= left_out;
      } else {
        count = std::string(only.normalize(begin, storage)).size();
      }
    }
    now = std::move(next);
    count = std::min(count, now.size());
  }
  return count;
}

}  // namespace trainer
