// PipelineTokenizer::encode_with_ranges(): the ids of encode(), each with its place in the text.
#include <algorithm>
#include <deque>
#include <functional>

#include "text/tokenizer/byte_tokens.h"
#include "text/tokenizer/pipeline_tokenizer.h"
#include "text/tokenizer/text_alignment.h"
#include "text/unicode/utf8.h"

namespace trainer {
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
  if (add_special_tokens) {
    for (const int32_t id : pipeline_.suffix) writer.push(id, text.size(), text.size());
  }
  return std::move(writer.out);
}

// Like encode_piece(). `offset`: where the piece begins in the text.
void PipelineTokenizer::ranges_of_piece(std::string_view piece, size_t offset, RangeWriter& writer) const {
  std::string storage;
  std::string_view text = pipeline_.normalizer.normalize(piece, storage);
  if (text.empty()) return;
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
    const bool at_start = offset == 0 && begin == 0;
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
