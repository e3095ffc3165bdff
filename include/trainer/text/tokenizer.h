// Text <-> token ids, as the model's own tokenizer files say.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainer {

// Bytes [begin, end) of a text.
struct TextRange {
  size_t begin, end;
};

struct TokenizedText {
  std::vector<int32_t> ids;
  std::vector<TextRange> ranges;  // of each id: what of the text it comes from
};

// Safe to use from several threads at once, but for add_tokens().
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The ids of `text`; with add_special_tokens those that Hugging Face's default call gives (T5: ends in
  // </s>). Throws DataError for text that is not valid UTF-8.
  virtual std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const = 0;

  // The same ids with their places in `text`, as `offsets` of Hugging Face's `tokenizers` gives them, but in
  // bytes and with the blanks that are in a token: a token that is a part of a character gets all of it, one
  // that stands for nothing of the text (</s> at the end, a blank put in front) an empty range.
  virtual TokenizedText encode_with_ranges(std::string_view text, bool add_special_tokens) const = 0;

  // The text of `ids`. Characters split across tokens are put together; bytes that form no character become
  // U+FFFD. Ids outside the vocabulary throw DataError.
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const = 0;

  // One more than the highest id the tokenizer can give.
  virtual int64_t vocab_size() const = 0;

  // The id of a token by its exact name ("<|im_end|>", "▁the"), or none.
  virtual std::optional<int32_t> token_to_id(std::string_view token) const = 0;

  virtual std::optional<int32_t> eos_id() const = 0;
  virtual std::optional<int32_t> pad_id() const = 0;
  virtual std::optional<int32_t> unk_id() const = 0;

  // What the ids follow from, as a short text: the same for tokenizers that give the same ids. "" where that
  // is not known; then nothing that was made with it is kept for later.
  virtual std::string fingerprint() const { return ""; }

  // Adds tokens as Hugging Face's `tokenizer.add_tokens(list of strings)` does: found anywhere in normalized
  // text, not special (decode() keeps them). New ones get the ids from vocab_size() on, in this order; one
  // that the model's vocabulary has becomes an added token under its id; added tokens stay as they are
  // (Hugging Face would make a special one ordinary).
  virtual void add_tokens(const std::vector<std::string>& tokens) = 0;
};

// Of a model directory, or an adapter directory (its own files, else those of its base model): tokenizer.json
// (BPE or Unigram: Qwen, Llama, Mistral, GPT-2, SmolLM2, T5) or spiece.model (SentencePiece; T5, mT5). Names
// of the special tokens come from tokenizer_config.json / special_tokens_map.json. Throws FormatError that
// names the file and the construct when something is missing, damaged or not supported; never guesses.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& directory);

// Writes into `to` (it exists; other than `from`) the tokenizer files of `from`, a directory as above, after
// add_tokens(added): load_tokenizer() and Hugging Face's AutoTokenizer give the same ids from them. Throws as
// load_tokenizer() does.
void save_tokenizer(const std::filesystem::path& from, const std::vector<std::string>& added,
                    const std::filesystem::path& to);

}  // namespace trainer
