#include "text/tokenizer/text_alignment.h"

#include <utf8proc.h>

#include "text/tokenizer/normalizer.h"
#include "text/unicode/utf8.h"

namespace trainer {
namespace {

size_t count_characters(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += character_length(text, at)) count++;
  return count;
}

// Calls `use`(begin, end) for each grapheme. Normal forms never compose characters of two graphemes.
template <class Use>
void for_each_grapheme(std::string_view text, const Use& use) {
  utf8proc_int32_t state = 0;
  size_t begin = 0;
  utf8proc_int32_t last = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t here = at;
    const auto c = static_cast<utf8proc_int32_t>(next_code_point(text, at));
    if (here > begin && utf8proc_grapheme_break_stateful(last, c, &state)) {
      use(begin, here);
      begin = here;
      state = 0;
    }
    last = c;
  }
  if (begin < text.size()) use(begin, text.size());
}

// Applies `change` to each grapheme. If that gives another text, applies it to the whole text at once.
template <class Change>
AlignedText changed_by_grapheme(const AlignedText& before, const Change& change) {
  AlignedText after("");
  for_each_grapheme(before.bytes, [&](size_t begin, size_t end) {
    after.append(before, begin, end, change(std::string_view(before.bytes).substr(begin, end - begin)));
  });
  const std::string whole = change(before.bytes);
  if (after.bytes == whole) return after;
  AlignedText coarse("");
  coarse.append(before, 0, before.bytes.size(), whole);
  return coarse;
}

}  // namespace

AlignedText::AlignedText(std::string_view original) : bytes(original) {
  ranges.reserve(original.size());
  for (size_t at = 0; at < original.size();) {
    const size_t end = at + character_length(original, at);
    for (size_t i = at; i < end; i++) ranges.push_back({at, end});
    at = end;
  }
}

void AlignedText::append(const AlignedText& before, size_t begin, size_t end, std::string_view changed) {
  const std::string_view replaced = std::string_view(before.bytes).substr(begin, end - begin);
  bytes += changed;
  if (replaced.empty()) {
    const TextRange next = begin < before.ranges.size() ? before.ranges[begin] : TextRange{0, 0};
    ranges.insert(ranges.end(), changed.size(), next);
  } else if (count_characters(replaced) == count_characters(changed)) {
    for (size_t from = 0, to = 0; to < changed.size();) {
      const size_t size = character_length(changed, to);
      ranges.insert(ranges.end(), size, before.ranges[begin + from]);
      from += character_length(replaced, from);
      to += size;
    }
  } else {
    ranges.insert(ranges.end(), changed.size(), {before.ranges[begin].begin, before.ranges[end - 1].end});
  }
}

AlignedText Normalizer::align(std::string_view text) const {
  AlignedText now(text);
  for (const auto& step : steps_) {
    const std::string_view bytes = now.bytes;
    AlignedText next("");
    if (const auto* form = std::get_if<NormalForm>(&step)) {
      if (!may_change(bytes, *form)) continue;
      next = changed_by_grapheme(now, [&](std::string_view part) { return to_normal_form(part, *form); });
    } else if (const auto* charsmap = std::get_if<Charsmap>(&step)) {
      next = changed_by_grapheme(now, [&](std::string_view part) { return charsmap->normalize(part); });
    } else if (const auto* prepend = std::get_if<Prepend>(&step)) {
      if (bytes.empty()) continue;
      next.append(now, 0, 0, prepend->text);
      next.append(now, 0, bytes.size(), bytes);
    } else if (const auto* replace = std::get_if<Replace>(&step)) {
      std::vector<Span> matches;
      replace->pattern.find_all(bytes, matches);
      size_t done = 0;
      for (const Span& match : matches) {
        next.append(now, done, match.begin, bytes.substr(done, match.begin - done));
        next.append(now, match.begin, match.end, replace->content);
        done = match.end;
      }
      next.append(now, done, bytes.size(), bytes.substr(done));
    } else {  // characters that stand for themselves or were left out
      Normalizer only;
      only.steps_.push_back(step);
      std::string storage;
      const std::string_view whole = only.normalize(bytes, storage);
      if (std::holds_alternative<Strip>(step)) {
        const size_t begin = whole.empty() ? 0 : bytes.find(whole);
        next.append(now, begin, begin + whole.size(), whole);
      } else {
        std::string changed;
        for (size_t at = 0; at < bytes.size();) {
          const size_t end = at + character_length(bytes, at);
          next.append(now, at, end, only.normalize(bytes.substr(at, end - at), changed));
          at = end;
        }
      }
    }
    now = std::move(next);
  }
  return now;
}

std::vector<TextRange> align_word(std::string_view word, std::string_view text, BlankSign sign,
                                  size_t& cursor) {
  std::vector<TextRange> ranges;
  const auto character = [](std::string_view of, size_t at) {
    return at < of.size() ? of.substr(at, character_length(of, at)) : std::string_view();
  };
  for (size_t at = 0; at < word.size();) {
    const std::string_view c = character(word, at);
    const auto stands_for = [&](std::string_view here) {
      return here == c || (here == " " && c == sign.text && !sign.never_a_blank);
    };
    while (at == 0 && sign.never_a_blank && character(text, cursor) == " ") cursor++;
    const bool in_front = at == 0 && (c == " " || c == sign.text) && !stands_for(character(text, cursor));
    while (!in_front && cursor < text.size() && !stands_for(character(text, cursor)))
      cursor += character_length(text, cursor);  // left out
    const size_t size = character(text, cursor).size();
    ranges.insert(ranges.end(), c.size(), {cursor, cursor + size});
    if (!in_front) cursor += size;
    at += c.size();
  }
  return ranges;
}

}  // namespace trainer
