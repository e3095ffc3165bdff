#include "text/sentencepiece_tokenizer.h"

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"

#include "text/utf8.h"

namespace trainer {
namespace {

using PieceType = SentencePieceModel::PieceType;

constexpr std::string_view kBlank = "\u2581";  // how pieces write a blank

std::vector<Unigram::Piece> all_pieces(const SentencePieceModel& model, int64_t extra_ids) {
  std::vector<Unigram::Piece> pieces;
  for (const auto& piece : model.pieces) pieces.push_back({piece.text, piece.score});
  for (int64_t i = extra_ids - 1; i >= 0; i--) pieces.push_back({concat("<extra_id_", i, ">"), 0});
  return pieces;
}

int32_t unknown_piece(const SentencePieceModel& model, const std::filesystem::path& path) {
  const auto found = std::ranges::find(model.pieces, PieceType::unknown, &SentencePieceModel::Piece::type);
  if (found == model.pieces.end()) throw FormatError(concat(path.string(), ": has no unknown piece (<unk>)"));
  return static_cast<int32_t>(found - model.pieces.begin());
}

// What is a token of its own in text: T5's three (under their standard names unless the files say others),
// control pieces and pieces that the user defined, extra ids.
void complete(SpecialTokens& special, const SentencePieceModel& model,
              const std::vector<Unigram::Piece>& pieces) {
  for (auto [name, standard] :
       {std::pair(&special.eos, "</s>"), {&special.unk, "<unk>"}, {&special.pad, "<pad>"}}) {
    if (*name) continue;
    *name = standard;
    special.named.push_back({.content = standard, .special = true});
  }
  for (size_t id = 0; id < pieces.size(); id++) {
    const PieceType type = id < model.pieces.size() ? model.pieces[id].type : PieceType::control;
    if (type != PieceType::control && type != PieceType::user_defined) continue;
    special.additional.push_back({.content = pieces[id].text, .special = type == PieceType::control});
  }
}

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(const SentencePieceModel& model, SpecialTokens special,
                                               const std::filesystem::path& path)
    : pieces_(all_pieces(model, special.extra_ids.value_or(100))),
      unigram_(pieces_, unknown_piece(model, path)),
      charsmap_(model.charsmap, path) {
  if (model.model_type != 1 || model.byte_fallback) {
    throw FormatError(
        concat(path.string(), ": only unigram models without byte_fallback (T5) are supported"));
  }
  for (size_t id = 0; id < pieces_.size(); id++) {
    if (ids_.emplace(pieces_[id].text, static_cast<int32_t>(id)).second) continue;
    throw FormatError(concat(path.string(), ": the piece '", pieces_[id].text,
                             "' is there twice; where the file has ",
                             "its own <extra_id_N>, tokenizer_config.json must say \"extra_ids\": 0"));
  }
  complete(special, model, pieces_);
  add_special_tokens(
      special, [&](std::string_view name) { return find_piece(name); }, static_cast<int32_t>(pieces_.size()),
      (path.parent_path() / "tokenizer_config.json").string(), added_);
  prepare_added_tokens();
  eos_ = token_to_id(*special.eos);
  pad_ = token_to_id(*special.pad);
  unk_ = token_to_id(*special.unk);
}

void SentencePieceTokenizer::prepare_added_tokens() {
  added_.prepare([&](std::string_view text) { return charsmap_.normalize(text); });
  vocab_size_ = std::max(static_cast<int32_t>(pieces_.size()), added_.largest_id() + 1);
}

void SentencePieceTokenizer::add_tokens(const std::vector<std::string>& tokens) {
  added_.add(
      tokens, [&](std::string_view name) { return find_piece(name); }, static_cast<int32_t>(pieces_.size()));
  prepare_added_tokens();
}

std::vector<int32_t> SentencePieceTokenizer::encode(std::string_view text, bool add_special_tokens) const {
  require_utf8(text);
  std::vector<int32_t> ids;
  std::vector<AddedTokens::Piece> pieces;
  added_.split(text, false, pieces);
  for (const auto& piece : pieces) {
    if (piece.id >= 0) {
      ids.push_back(piece.id);
    } else {
      encode_normalized(charsmap_.normalize(piece.text), ids);
    }
  }
  if (add_special_tokens) ids.push_back(*eos_);
  return ids;
}

void SentencePieceTokenizer::encode_normalized(std::string_view text, std::vector<int32_t>& ids) const {
  if (!added_.has_normalized()) return encode_words(text, ids);
  std::vector<AddedTokens::Piece> pieces;
  added_.split(text, true, pieces);
  for (const auto& piece : pieces) {
    if (piece.id >= 0) {
      ids.push_back(piece.id);
    } else {
      encode_words(piece.text, ids);
    }
  }
}

// Words lie between white space. Each begins with the sign for a blank, and each such sign begins a word.
void SentencePieceTokenizer::encode_words(std::string_view text, std::vector<int32_t>& ids) const {
  std::string word;
  const auto finish = [&] {
    if (!word.empty()) unigram_.encode(word, ids);
    word.clear();
  };
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (is_white_space(next_code_point(text, at))) {
      finish();
      continue;
    }
    const std::string_view character = text.substr(begin, at - begin);
    if (character == kBlank) {
      finish();
    } else if (word.empty()) {
      word = kBlank;
    }
    word += character;
  }
  finish();
}

std::string_view SentencePieceTokenizer::name_of(int32_t id) const {
  if (const std::string* text = added_.text_of(id)) return *text;
  if (id < 0 || static_cast<size_t>(id) >= pieces_.size()) {
    throw DataError(concat("token id ", id, " is not in the vocabulary of ", vocab_size_, " tokens"));
  }
  return pieces_[id].text;
}

std::string SentencePieceTokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::string text;
  bool first = true;  // the first token loses its blanks
  for (int32_t id : ids) {
    std::string_view name = name_of(id);
    if (skip_special_tokens && added_.is_special(id)) continue;
    while (true) {
      const size_t blank = name.find(kBlank);
      text += name.substr(0, blank);
      if (blank == std::string_view::npos) break;
      if (!first) text += ' ';
      name.remove_prefix(blank + kBlank.size());
    }
    first = false;
  }
  return text;
}

std::optional<int32_t> SentencePieceTokenizer::token_to_id(std::string_view token) const {
  const auto id = added_.id_of(token);
  return id ? id : find_piece(token);
}

std::optional<int32_t> SentencePieceTokenizer::find_piece(std::string_view name) const {
  const auto found = ids_.find(std::string(name));
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

std::unique_ptr<FileTokenizer> load_sentencepiece_tokenizer(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "spiece.model";
  return std::make_unique<SentencePieceTokenizer>(read_sentencepiece_model(read_file(path), path),
                                                  read_special_tokens(directory), path);
}

}  // namespace trainer
