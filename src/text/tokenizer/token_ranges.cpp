// PipelineTokenizer::encode_with_ranges(): the ids of encode(), each with its place in the text.
#include <algorithm>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <utf8proc.h>
#include <vector>

#include "trainer/text/tokenizer.h"

#include "base/utf8.h"
#include "text/tokenizer/byte_tokens.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pipeline_tokenizer.h"

namespace trainer {

// Maps each byte of a changed text to its range in the original text.

struct AlignedText {
  explicit AlignedText(std::string_view original);

  // Appends `changed`, which replaces bytes [begin, end) of `before`. If both have the same number of
  // characters, they are mapped one to one; otherwise each byte of `changed` maps to the whole range.
  void append(const AlignedText& before, size_t begin, size_t end, std::string_view changed);

  std::string bytes;
  std::vector<TextRange> ranges;  // of each byte
};

// The sign that stands for a space in words; "" if it is a space itself. never_a_blank: the sign is only
// added in front of words, and words contain no spaces.
struct BlankSign {
  std::string_view text;
  bool never_a_blank;
};
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

// `word` was made from the part of `text` after `cursor`: spaces may be written as `sign`, a sign may have
// been added in front, and characters may have been left out. Returns the range in `text` of each byte of
// `word`; an added sign gets the range of the next character. `cursor` moves past the word.
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
namespace {

bool lies_within(std::string_view part, std::string_view text) {
  const std::less_equal<const char*> not_after;
  return not_after(text.data(), part.data()) &&
         not_after(part.data() + part.size(), text.data() + text.size());
}

bool is_inside_character(std::string_view text, size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;
}

}  // namespace

// A token that is a part of a character gets the range of the whole character.
struct PipelineTokenizer::RangeWriter {
  std::string_view text;  // the whole text
  TokenizedText out;

  void push(int32_t id, size_t begin, size_t end) {
    while (is_inside_character(text, begin)) begin--;
    while (is_inside_character(text, end)) end++;
    out.ids.push_back(id);
    out.ranges.push_back({begin, end});
  }
};

TokenizedText PipelineTokenizer::encode_with_ranges(std::string_view text, bool add_special_tokens) const {
  require_utf8(text);
  RangeWriter writer{text, {}};
  if (add_special_tokens) {
    for (const int32_t id : pipeline_.prefix) writer.push(id, 0, 0);
  }
  std::vector<AddedTokens::Piece> pieces;
  pipeline_.added_tokens.split(text, false, pieces);
  for (const auto& piece : pieces) {
    const size_t begin = static_cast<size_t>(piece.text.data() - text.data());
    if (piece.id >= 0) {
      writer.push(piece.id, begin, begin + piece.text.size());
    } else {
      ranges_of_piece(piece.text, begin, writer);
    }
  }
  if (add_special_tokens && needs_suffix(writer.out.ids)) {
    for (const int32_t id : pipeline_.suffix) writer.push(id, text.size(), text.size());
  }
  return std::move(writer.out);
}

// Like encode_piece(). `offset`: where the piece begins in the text.
void PipelineTokenizer::ranges_of_piece(std::string_view piece, size_t offset, RangeWriter& writer) const {
  std::string storage;
  std::string_view text = pipeline_.normalizer.normalize(piece, storage);
  if (text.empty()) return;
  const size_t start = offset == 0 ? bytes_at_start(piece, text) : 0;
  std::vector<TextRange> ranges;  // of each byte of `text`; empty: nothing was changed
  if (text != piece) {
    AlignedText aligned = pipeline_.normalizer.align(piece);
    storage = std::move(aligned.bytes);
    text = storage;
    ranges = std::move(aligned.ranges);
  }
  const auto push = [&](int32_t id, size_t begin, size_t end) {
    if (ranges.empty()) return writer.push(id, offset + begin, offset + end);
    if (begin == end) begin = end = std::min(begin, ranges.size() - 1);
    writer.push(id, offset + ranges[begin].begin, offset + ranges[std::max(end, begin + 1) - 1].end);
  };
  std::vector<AddedTokens::Piece> parts{{text, -1}};
  if (pipeline_.added_tokens.has_normalized()) {
    parts.clear();
    pipeline_.added_tokens.split(text, true, parts);
  }
  for (const auto& part : parts) {
    const size_t begin = static_cast<size_t>(part.text.data() - text.data());
    if (part.id >= 0) {
      push(part.id, begin, begin + part.text.size());
      continue;
    }
    std::deque<std::string> words_storage;
    const BlankSign sign{pipeline_.pre_tokenizer.sign_of_blanks(), pipeline_.pre_tokenizer.drops_blanks()};
    size_t cursor = 0;
    std::vector<int32_t> ids;
    const bool at_start = begin < start;
    for (const std::string_view word : pipeline_.pre_tokenizer.words(part.text, at_start, words_storage)) {
      ids.clear();
      pipeline_.model->encode(word, ids);
      const std::vector<size_t> ends = ends_in_word(word, ids);
      if (lies_within(word, part.text)) {
        const size_t at = begin + static_cast<size_t>(word.data() - part.text.data());
        for (size_t i = 0; i < ids.size(); i++) push(ids[i], at + (i ? ends[i - 1] : 0), at + ends[i]);
        cursor = at - begin + word.size();
        continue;
      }
      const std::vector<TextRange> places = align_word(word, part.text, sign, cursor);
      for (size_t i = 0; i < ids.size(); i++) {
        const size_t first = i ? ends[i - 1] : 0, last = std::max(ends[i], first + 1) - 1;
        if (first >= places.size()) {
          push(ids[i], begin + cursor, begin + cursor);
        } else {
          push(ids[i], begin + places[first].begin, begin + places[last].end);
        }
      }
    }
  }
}

// Returns where each token ends in its word.
std::vector<size_t> PipelineTokenizer::ends_in_word(std::string_view word,
                                                    const std::vector<int32_t>& ids) const {
  const bool byte_level = pipeline_.decoder.is_byte_level();
  // Returns how many bytes of the word, from this place, the token stands for; nullopt if it does not fit.
  const auto fit = [&](int32_t id, size_t at) -> std::optional<size_t> {
    const auto& name = texts_[static_cast<size_t>(id)];
    if (!name) return std::nullopt;
    if (word.substr(at).starts_with(*name)) return name->size();
    const auto byte = byte_level || at == word.size() ? std::nullopt : byte_of_token(*name);
    return byte && *byte == static_cast<unsigned char>(word[at]) ? std::optional<size_t>(1) : std::nullopt;
  };
  const auto next = [&](size_t at) { return at + character_length(word, at); };
  std::vector<size_t> ends;
  size_t at = 0;
  for (size_t i = 0; i < ids.size(); i++) {
    auto size = fit(ids[i], at);
    if (!size && ids[i] == pipeline_.unk) {
      // An unknown token reaches up to where the next token fits. Of two in a row, each has one character.
      const bool another = i + 1 < ids.size() && ids[i + 1] == pipeline_.unk;
      size_t end = at < word.size() ? next(at) : at;
      while (!another && end < word.size() && (i + 1 == ids.size() || !fit(ids[i + 1], end))) end = next(end);
      size = end - at;
    }
    while (!size && at < word.size()) {  // characters that have no token
      at = byte_level ? at + 1 : next(at);
      size = fit(ids[i], at);
    }
    at += size.value_or(0);
    ends.push_back(at);
  }
  return ends;
}

}  // namespace trainer
