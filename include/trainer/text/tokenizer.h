// Converts between text and token ids, as the model's own tokenizer files define it.
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
  std::vector<TextRange> ranges;  // for each id, the part of the text that it comes from
};

// Safe to use from several threads at once, except add_tokens().
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Returns the ids of `text`. With add_special_tokens they are those of Hugging Face's default call (T5: the
  // last one is </s>). Throws DataError for text that is not valid UTF-8.
  virtual std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const = 0;

  // Returns the same ids with their ranges in `text`, like `offsets` of Hugging Face's `tokenizers`, but in
  // bytes and with the spaces that are in a token. A token that is a part of a character gets the range of
  // the whole character. A token without text (</s> at the end, a space added in front) gets an empty range.
  virtual TokenizedText encode_with_ranges(std::string_view text, bool add_special_tokens) const = 0;

  // Returns the text of `ids`. Characters split across tokens are joined; invalid bytes become U+FFFD. Throws
  // DataError for ids outside the vocabulary.
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const = 0;
  // Returns whether decode() removes blanks before punctuation and English endings ("it 's").
  virtual bool cleans_up_spaces() const { return false; }

  // Returns whether each token is a byte of the text in UTF-8 (ByT5), but for special ones.
  virtual bool tokens_are_bytes() const { return false; }

  // Returns one more than the highest id that the tokenizer can give.
  virtual int64_t vocab_size() const = 0;

  // Returns the id of a token by its exact name ("<|im_end|>", "▁the"); nullopt if there is none.
  virtual std::optional<int32_t> token_to_id(std::string_view token) const = 0;

  virtual std::optional<int32_t> eos_id() const = 0;
  virtual std::optional<int32_t> pad_id() const = 0;
  virtual std::optional<int32_t> unk_id() const = 0;

  // Returns a short text that is equal only for tokenizers that give the same ids. "" if it is not known;
  // then nothing that was made with this tokenizer is cached.
  virtual std::string fingerprint() const { return ""; }

  // Adds tokens as Hugging Face's `tokenizer.add_tokens(list of strings)` does: they match anywhere in
  // normalized text and are not special (decode() keeps them). But blanks, and tokens whose blanks
  // normalization changes ("\n" in T5), match as they are, as AddedToken(..., normalized=False) does: else
  // they would take every space. New tokens get ids from vocab_size() on, in this order. A token that is in
  // the model's vocabulary becomes an added token and keeps its id. Tokens that were added before stay as
  // they are (Hugging Face would make a special one ordinary).
  virtual void add_tokens(const std::vector<std::string>& tokens) = 0;
};

// Returns whether the directory itself has the files of a tokenizer that can be loaded, without its base
// model.
bool has_tokenizer(const std::filesystem::path& directory);

// Loads the tokenizer of a model directory, or of an adapter directory (its own files, otherwise those of its
// base model): tokenizer.json (BPE or Unigram: Qwen, Llama, Mistral, GPT-2, SmolLM2, T5), spiece.model
// (SentencePiece; T5, mT5), or none where the class is ByT5Tokenizer (bytes). The names of the special tokens
// come from tokenizer_config.json and special_tokens_map.json. When something is missing, damaged or not
// supported, throws a FormatError that names the file and the construct; never guesses.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& directory);

// Writes the tokenizer files of `from` (a directory as above) to `to`, with the tokens of add_tokens(added).
// `to` must exist and differ from `from`. load_tokenizer() and Hugging Face's AutoTokenizer give the same ids
// with these files. Throws as load_tokenizer() does.
void save_tokenizer(const std::filesystem::path& from, const std::vector<std::string>& added,
                    const std::filesystem::path& to);

}  // namespace trainer
