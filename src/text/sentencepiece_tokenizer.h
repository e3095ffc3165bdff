// SentencePiece as T5 uses it: pieces, then <extra_id_99> ... <extra_id_0>; </s> ends a text. Ids and text
// are those of Transformers' T5Tokenizer.
#pragma once

#include <filesystem>
#include <unordered_map>

#include "text/charsmap.h"
#include "text/file_tokenizer.h"
#include "text/sentencepiece_model.h"
#include "text/special_tokens.h"
#include "text/unigram.h"

namespace trainer {

class SentencePieceTokenizer final : public FileTokenizer {
 public:
  // `path` is for messages.
  SentencePieceTokenizer(const SentencePieceModel& model, SpecialTokens special,
                         const std::filesystem::path& path);

  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const override;
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const override;
  int64_t vocab_size() const override { return vocab_size_; }
  std::optional<int32_t> token_to_id(std::string_view token) const override;
  std::optional<int32_t> eos_id() const override { return eos_; }
  std::optional<int32_t> pad_id() const override { return pad_; }
  std::optional<int32_t> unk_id() const override { return unk_; }
  void add_tokens(const std::vector<std::string>& tokens) override;
  const AddedTokens& added_tokens() const override { return added_; }

 private:
  void prepare_added_tokens();
  std::optional<int32_t> find_piece(std::string_view name) const;
  void encode_normalized(std::string_view text, std::vector<int32_t>& ids) const;
  void encode_words(std::string_view text, std::vector<int32_t>& ids) const;
  std::string_view name_of(int32_t id) const;

  std::vector<Unigram::Piece> pieces_;  // with the extra ids
  Unigram unigram_;
  Charsmap charsmap_;
  std::unordered_map<std::string, int32_t> ids_;  // of the pieces
  AddedTokens added_;
  int64_t vocab_size_ = 0;
  std::optional<int32_t> eos_, pad_, unk_;
};

std::unique_ptr<FileTokenizer> load_sentencepiece_tokenizer(const std::filesystem::path& directory);

}  // namespace trainer
