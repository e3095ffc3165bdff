// The unigram language model of SentencePiece (Kudo 2018): a word is split into the pieces with the largest
// sum of scores. Scores are added in double precision, separately for each word, as in the `tokenizers`
// library. This decides between the same pieces in another order ("0" "00"), whose sums differ only by
// rounding. SentencePiece's own library before 0.2 adds in single precision.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/byte_tokens.h"
#include "text/tokenizer/piece_trie.h"
#include "text/tokenizer/word_cache.h"
#include "text/tokenizer/word_model.h"

namespace trainer {

struct UnigramModel {
  struct Piece {
    std::string text;
    double score;
  };
  std::vector<Piece> pieces;  // by id
  std::optional<int32_t> unk;
  bool byte_fallback = false;
};

class Unigram final : public WordModel {
 public:
  explicit Unigram(const UnigramModel& model);
  // Adjacent characters that no piece covers give one unk, or with byte_fallback the tokens of their bytes.
  void encode(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  // The best split of the word up to some place: its last piece, and where that begins.
  struct End {
    double score;
    size_t begin;
    int32_t id;
  };
  void find_best(std::string_view word, End* ends) const;
  void append(std::string_view word, const End* ends, std::vector<int32_t>& ids) const;
  void append_unknown(std::string_view text, std::vector<int32_t>& ids) const;

  PieceTrie trie_;
  std::vector<double> scores_;
  std::optional<int32_t> unk_;
  ByteTokens byte_tokens_;
  double unk_score_;
  mutable WordCache cache_;
};

}  // namespace trainer
