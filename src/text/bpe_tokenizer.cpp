#include "text/bpe_tokenizer.h"

#include <algorithm>
#include <deque>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "text/byte_level.h"
#include "text/normalizer.h"
#include "text/utf8.h"

namespace trainer {

BpeTokenizer::BpeTokenizer(TokenizerJson file, const SpecialTokens& special)
    : file_(std::move(file)), bpe_(file_.model), bytes_(std::move(file_.model.tokens)) {
  file_.model = {};
  prepare_added_tokens();
  const auto id = [&](const std::optional<std::string>& name) {
    return name ? token_to_id(*name) : std::nullopt;
  };
  eos_ = id(special.eos);
  pad_ = id(special.pad);
  unk_ = id(special.unk);
}

void BpeTokenizer::prepare_added_tokens() {
  AddedTokens& added = file_.added_tokens;
  added.prepare([&](std::string_view text) { return file_.nfc ? nfc(text) : std::string(text); });
  bytes_.resize(std::max(bytes_.size(), static_cast<size_t>(added.largest_id() + 1)));
  // The decoder takes added tokens for byte-level names as well, where they can be.
  for (const auto& [id, token] : added.all())
    bytes_[id] = byte_level_bytes(*added.text_of(id)).value_or(*added.text_of(id));
}

void BpeTokenizer::add_tokens(const std::vector<std::string>& tokens) {
  file_.added_tokens.add(
      tokens, [&](std::string_view name) { return file_.find(name); },
      static_cast<int32_t>(file_.vocabulary.size()));
  prepare_added_tokens();
}

std::vector<int32_t> BpeTokenizer::encode(std::string_view text, bool add_special_tokens) const {
  require_utf8(text);
  std::vector<int32_t> ids;
  if (add_special_tokens) ids = file_.prefix;
  std::vector<AddedTokens::Piece> pieces;
  file_.added_tokens.split(text, false, pieces);
  for (const auto& piece : pieces) {
    if (piece.id >= 0) {
      ids.push_back(piece.id);
    } else if (file_.nfc && may_change_under_nfc(piece.text)) {
      encode_normalized(nfc(piece.text), ids);
    } else {
      encode_normalized(piece.text, ids);
    }
  }
  if (add_special_tokens) ids.insert(ids.end(), file_.suffix.begin(), file_.suffix.end());
  return ids;
}

void BpeTokenizer::encode_normalized(std::string_view text, std::vector<int32_t>& ids) const {
  if (!file_.added_tokens.has_normalized()) return encode_words(text, ids);
  std::vector<AddedTokens::Piece> pieces;
  file_.added_tokens.split(text, true, pieces);
  for (const auto& piece : pieces) {
    if (piece.id >= 0) {
      ids.push_back(piece.id);
    } else {
      encode_words(piece.text, ids);
    }
  }
}

void BpeTokenizer::encode_words(std::string_view text, std::vector<int32_t>& ids) const {
  std::deque<std::string> storage;
  for (std::string_view word : file_.pre_tokenizer.words(text, storage)) bpe_.encode(word, ids);
}

std::string BpeTokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::string bytes;
  for (int32_t id : ids) {
    if (id < 0 || static_cast<size_t>(id) >= bytes_.size() || !bytes_[id]) {
      throw DataError(concat("token id ", id, " is not in the vocabulary of ", bytes_.size(), " tokens"));
    }
    if (!skip_special_tokens || !file_.added_tokens.is_special(id)) bytes += *bytes_[id];
  }
  return repair_utf8(bytes);
}

std::optional<int32_t> BpeTokenizer::token_to_id(std::string_view token) const {
  if (const auto id = file_.added_tokens.id_of(token)) return id;
  return file_.find(token);
}

std::unique_ptr<FileTokenizer> load_bpe_tokenizer(const std::filesystem::path& directory) {
  TokenizerJson file = read_tokenizer_json(directory / "tokenizer.json");
  const SpecialTokens special = read_special_tokens(directory);
  add_special_tokens(
      special, [&](std::string_view name) { return file.find(name); },
      static_cast<int32_t>(file.model.tokens.size()), (directory / "tokenizer_config.json").string(),
      file.added_tokens);
  return std::make_unique<BpeTokenizer>(std::move(file), special);
}

}  // namespace trainer
