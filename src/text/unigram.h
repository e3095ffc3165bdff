// The unigram language model of SentencePiece: a word is cut into the pieces with the greatest sum of scores
// (Kudo 2018). Sums are in double precision and word by word, as in the `tokenizers` library: pieces that
// differ in their order only ("0" "00") tie but for rounding, and SentencePiece's own library before 0.2 sums
// in single precision.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/trie.h"
#include "text/word_cache.h"

namespace trainer {

// Safe to use from several threads at once.
class Unigram {
 public:
  struct Piece {
    std::string text;
    double score;
  };
  // The place of a piece is its id.
  Unigram(const std::vector<Piece>& pieces, int32_t unk);

  // Appends the ids of a word of valid UTF-8. Neighbouring characters that no piece covers give one unk.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;

 private:
  std::vector<int32_t> best_path(std::string_view word) const;

  Trie trie_;
  std::vector<double> scores_;
  int32_t unk_;
  double unk_score_;
  mutable WordCache cache_;
};

}  // namespace trainer
