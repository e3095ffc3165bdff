// Byte-level BPE as tokenizer.json describes it: Qwen2, Qwen3, Llama 3, GPT-2 and relatives.
#pragma once

#include "text/file_tokenizer.h"
#include "text/special_tokens.h"
#include "text/tokenizer_json.h"

namespace trainer {

class BpeTokenizer final : public FileTokenizer {
 public:
  BpeTokenizer(TokenizerJson file, const SpecialTokens& special);

  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const override;
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const override;
  int64_t vocab_size() const override { return static_cast<int64_t>(bytes_.size()); }
  std::optional<int32_t> token_to_id(std::string_view token) const override;
  std::optional<int32_t> eos_id() const override { return eos_; }
  std::optional<int32_t> pad_id() const override { return pad_; }
  std::optional<int32_t> unk_id() const override { return unk_; }
  void add_tokens(const std::vector<std::string>& tokens) override;
  const AddedTokens& added_tokens() const override { return file_.added_tokens; }

 private:
  void prepare_added_tokens();
  void encode_normalized(std::string_view text, std::vector<int32_t>& ids) const;
  void encode_words(std::string_view text, std::vector<int32_t>& ids) const;

  TokenizerJson file_;
  Bpe bpe_;
  std::vector<std::optional<std::string>> bytes_;  // id -> what it decodes to; none: no such id
  std::optional<int32_t> eos_, pad_, unk_;
};

std::unique_ptr<FileTokenizer> load_bpe_tokenizer(const std::filesystem::path& directory);

}  // namespace trainer
