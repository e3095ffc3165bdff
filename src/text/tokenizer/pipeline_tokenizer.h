// The tokenizer that a pipeline describes.
#pragma once

#include <filesystem>
#include <memory>

#include "trainer/text/tokenizer.h"

#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/pipeline.h"
#include "text/tokenizer/special_tokens.h"

namespace trainer {

// A tokenizer made from files, whose added tokens can be written back.

class FileTokenizer : public Tokenizer {
 public:
  virtual const AddedTokens& added_tokens() const = 0;
};

// Returns the directory with the tokenizer: `directory` itself, or the base model of an adapter. Throws
// FormatError if there is no tokenizer, or only one that is not supported.
std::filesystem::path tokenizer_directory(const std::filesystem::path& directory);

// Loads the tokenizer of a directory, which must have one.
std::unique_ptr<FileTokenizer> load_file_tokenizer(const std::filesystem::path& directory);

class PipelineTokenizer final : public FileTokenizer {
 public:
  // `fingerprint` is that of the files that the tokenizer was made from.
  PipelineTokenizer(Pipeline pipeline, const SpecialTokens& special, std::string fingerprint);

  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const override;
  TokenizedText encode_with_ranges(std::string_view text, bool add_special_tokens) const override;
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const override;
  bool cleans_up_spaces() const override { return cleans_up_; }
  bool tokens_are_bytes() const override { return pipeline_.is_bytes; }
  int64_t vocab_size() const override { return static_cast<int64_t>(texts_.size()); }
  std::optional<int32_t> token_to_id(std::string_view token) const override;
  std::optional<int32_t> eos_id() const override { return eos_; }
  std::optional<int32_t> pad_id() const override { return pad_; }
  std::optional<int32_t> unk_id() const override { return unk_; }
  std::string fingerprint() const override { return fingerprint_; }
  void add_tokens(const std::vector<std::string>& tokens) override;
  const AddedTokens& added_tokens() const override { return pipeline_.added_tokens; }

 private:
  std::string normalized(std::string_view text) const;
  void prepare_added_tokens();
  bool needs_suffix(const std::vector<int32_t>& ids) const;
  // Returns how many bytes of the normalized piece, which begins the text, count as the text's start.
  size_t bytes_at_start(std::string_view piece, std::string_view normalized) const;
  void encode_piece(std::string_view piece, bool at_start, std::vector<int32_t>& ids) const;
  void encode_words(std::string_view text, bool at_start, std::vector<int32_t>& ids) const;

  struct RangeWriter;
  void ranges_of_piece(std::string_view piece, size_t offset, RangeWriter& writer) const;
  std::vector<size_t> ends_in_word(std::string_view word, const std::vector<int32_t>& ids) const;

  Pipeline pipeline_;
  // id -> the token for the decoder; for a decoder that only joins bytes, the bytes. nullopt: no such id.
  std::vector<std::optional<std::string>> texts_;
  std::optional<int32_t> eos_, pad_, unk_;
  bool cleans_up_ = false;
  std::string fingerprint_;
};

}  // namespace trainer
