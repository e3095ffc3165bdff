// A tokenizer in the form of GGUF's metadata.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trainer {

// Kinds of tokens, with their numbers in the file (as in SentencePiece).
enum class GgufTokenType : int32_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};

struct GgufVocabulary {
  // gpt2: byte-level BPE with merges; llama: SentencePiece's BPE with scores; gemma4: the same with merges;
  // t5: its unigram model
  std::string model;
  std::string pre;  // GGUF's name of the split: qwen2, llama-bpe, smollm, gpt-2, ...; else default
  std::vector<std::string> tokens;  // by id, one for each row of the embedding
  std::vector<int32_t> types;       // GgufTokenType
  std::vector<std::string> merges;  // gpt2, llama: "a b"
  std::vector<float> scores;        // llama, t5
  std::optional<int32_t> bos, eos, unk, pad;
  bool add_bos = false, add_eos = false;
  std::optional<bool> add_space_prefix;     // llama, t5
  std::optional<bool> remove_extra_spaces;  // t5
  std::vector<uint8_t> charsmap;            // t5: how characters are normalised, SentencePiece's table
};

// Reads the tokenizer of a model or adapter directory. `rows` is the number of rows of the model's embedding;
// ids that the tokenizer lacks become unused tokens. Throws a FormatError that names the problem: another
// kind of tokenizer, a way of splitting words that GGUF has no name for, more ids than rows.
GgufVocabulary read_gguf_vocabulary(const std::filesystem::path& directory, int64_t rows);

// Makes a vocabulary of kind llama the one that readers expect of Gemma 4: merged by its merges, and with the
// marks of its answers' parts as texts, which readers of chats look for. Others stay as they are.
void make_gemma4(GgufVocabulary& vocabulary);

}  // namespace trainer
