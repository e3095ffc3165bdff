// The unigram language model of SentencePiece: a word is cut into the pieces with the greatest sum of scores
// (Kudo 2018). Sums are in double precision and word by word, as in the `tokenizers` library: pieces that
// differ in their order only ("0" "00") tie but for rounding, and SentencePiece's own library before 0.2 sums
// in single precision.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/byte_tokens.h"
#include "text/trie.h"
#include "text/word_cache.h"
#include "text/word_model.h"

namespace trainer {

struct UnigramModel {
  struct Piece {
    std::string text;
    double score;
  };
  std::vector<Piece> pieces;  // the place of a piece is its id
  std::optional<int32_t> unk;
  bool byte_fallback = false;
};

class Unigram final : public WordModel {
 public:
  explicit Unigram(const UnigramModel& model);
  // Neighbouring characters that no piece covers give one unk, or with byte_fallback the tokens of their
  // bytes.
  void encode(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  struct Cut {
    size_t begin, end;
    int32_t id;
  };
  std::vector<Cut> best_path(std::string_view word) const;
  std::vector<int32_t> ids_of(std::string_view word, const std::vector<Cut>& path) const;
  std::optional<int32_t> find(std::string_view piece) const;

  Trie trie_;
  std::vector<double> scores_;
  std::optional<int32_t> unk_;
  ByteTokens byte_tokens_;
  double unk_score_;
  mutable WordCache cache_;
};

}  // namespace trainer
