#include "text/tokenizer/pipeline_tokenizer.h"

#include <algorithm>
#include <deque>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/checksum.h"
#include "base/utf8.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/byte_tokens.h"

namespace trainer {
namespace {

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
}

// Transformers' clean_up_tokenization(), in its order.
std::string cleaned_up(std::string text) {
  for (const char* what : {" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're"}) {
    std::string_view by(what);
    by.remove_prefix(1);
    if (by.ends_with(' ')) by.remove_suffix(1);
    replace_all(text, what, by);
  }
  return text;
}

}  // namespace

PipelineTokenizer::PipelineTokenizer(Pipeline pipeline, const SpecialTokens& special, std::string fingerprint)
    : pipeline_(std::move(pipeline)),
      texts_(std::move(pipeline_.names)),
      fingerprint_(std::move(fingerprint)) {
  if (pipeline_.decoder.is_byte_level()) {
    for (auto& text : texts_) {
      if (text) text = byte_level_bytes(*text).value_or(*text);
    }
  }
  prepare_added_tokens();
  const auto id = [&](const std::optional<std::string>& name) {
    return name ? token_to_id(*name) : std::nullopt;
  };
  eos_ = id(special.eos);
  pad_ = id(special.pad);
  unk_ = special.unk ? id(special.unk) : pipeline_.unk;
  // Transformers 5 leaves out what would damage the texts of a BPE, unless it is told twice.
  const bool is_bpe = dynamic_cast<const Bpe*>(pipeline_.model.get()) != nullptr;
  cleans_up_ = special.cleans_up_spaces && (!is_bpe || special.cleans_up_spaces_of_bpe);
}

std::string PipelineTokenizer::normalized(std::string_view text) const {
  std::string storage;
  return std::string(pipeline_.normalizer.normalize(text, storage));
}

void PipelineTokenizer::prepare_added_tokens() {
  AddedTokens& added = pipeline_.added_tokens;
  added.prepare([this](std::string_view text) { return normalized(text); });
  texts_.resize(std::max(texts_.size(), static_cast<size_t>(added.largest_id() + 1)));
  // The decoder also reads added tokens as byte-level names, if they can be.
  const bool byte_level = pipeline_.decoder.is_byte_level();
  for (const auto& [id, token] : added.all()) {
    const std::string& text = *added.text_of(id);
    texts_[id] = byte_level ? byte_level_bytes(text).value_or(text) : text;
  }
}

void PipelineTokenizer::add_tokens(const std::vector<std::string>& tokens) {
  pipeline_.added_tokens.add(
      tokens, [this](std::string_view text) { return normalized(text); },
      [this](std::string_view name) { return pipeline_.find(name); },
      static_cast<int32_t>(pipeline_.vocabulary.size()));
  for (const std::string& token : tokens) fingerprint_ = checksum(concat(fingerprint_, " + ", token));
  prepare_added_tokens();
}

std::vector<int32_t> PipelineTokenizer::encode(std::string_view text, bool add_special_tokens) const {
  require_utf8(text);
  std::vector<int32_t> ids;
  if (add_special_tokens) ids = pipeline_.prefix;
  std::vector<AddedTokens::Piece> pieces;
  pipeline_.added_tokens.split(text, false, pieces);
  for (const auto& piece : pieces) {
    if (piece.id >= 0) {
      ids.push_back(piece.id);
    } else {
      encode_piece(piece.text, piece.text.data() == text.data(), ids);
    }
  }
  if (add_special_tokens && needs_suffix(ids))
    ids.insert(ids.end(), pipeline_.suffix.begin(), pipeline_.suffix.end());
  return ids;
}

bool PipelineTokenizer::needs_suffix(const std::vector<int32_t>& ids) const {
  return !(pipeline_.suffix_once && !ids.empty() && ids.back() == pipeline_.suffix.back());
}

size_t PipelineTokenizer::bytes_at_start(std::string_view piece, std::string_view normalized) const {
  const bool same = !pipeline_.pre_tokenizer.adds_sign_at_start() || piece == normalized;
  return same ? 1 : pipeline_.normalizer.from_first_character(piece);
}

void PipelineTokenizer::encode_piece(std::string_view piece, bool at_start, std::vector<int32_t>& ids) const {
  std::string storage;
  const std::string_view text = pipeline_.normalizer.normalize(piece, storage);
  if (text.empty()) return;
  const size_t start = at_start ? bytes_at_start(piece, text) : 0;
  if (!pipeline_.added_tokens.has_normalized()) return encode_words(text, start > 0, ids);
  std::vector<AddedTokens::Piece> pieces;
  pipeline_.added_tokens.split(text, true, pieces);
  for (const auto& part : pieces) {
    if (part.id >= 0) {
      ids.push_back(part.id);
    } else {
      encode_words(part.text, static_cast<size_t>(part.text.data() - text.data()) < start, ids);
    }
  }
}

void PipelineTokenizer::encode_words(std::string_view text, bool at_start, std::vector<int32_t>& ids) const {
  std::deque<std::string> storage;
  for (std::string_view word : pipeline_.pre_tokenizer.words(text, at_start, storage))
    pipeline_.model->encode(word, ids);
}

std::string PipelineTokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  const bool byte_level = pipeline_.decoder.is_byte_level();
  std::string bytes;
  std::vector<std::string> tokens;
  for (int32_t id : ids) {
    if (id < 0 || static_cast<size_t>(id) >= texts_.size() || !texts_[id]) {
      throw DataError(concat("token id ", id, " is not in the vocabulary of ", texts_.size(), " tokens"));
    }
    if (skip_special_tokens && pipeline_.added_tokens.is_special(id)) continue;
    if (byte_level) {
      bytes += *texts_[id];
    } else {
      tokens.push_back(*texts_[id]);
    }
  }
  std::string text = byte_level ? repair_utf8(bytes) : pipeline_.decoder.decode(std::move(tokens));
  return cleans_up_ ? cleaned_up(std::move(text)) : text;
}

std::optional<int32_t> PipelineTokenizer::token_to_id(std::string_view token) const {
  const auto id = pipeline_.added_tokens.id_of(token);
  return id ? id : pipeline_.find(token);
}

}  // namespace trainer
