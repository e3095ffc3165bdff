// The unigram language model of SentencePiece (Kudo 2018): a word is split into the pieces with the largest
// sum of scores. Scores are added in double precision, separately for each word, as in the `tokenizers`
// library. This decides between the same pieces in another order ("0" "00"), whose sums differ only by
// rounding. SentencePiece's own library before 0.2 adds in single precision.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer/byte_tokens.h"
#include "text/tokenizer/word_model.h"

namespace trainer {

// A fixed set of byte strings, each with an id, as a double array (Aoe 1989). A search goes byte by byte;
// each step is one load from memory.

class PieceTrie {
 public:
  static constexpr int32_t kRoot = 0, kNone = -1;

  // If a text occurs twice, the last one counts. Empty texts are left out.
  explicit PieceTrie(std::span<const std::pair<std::string_view, int32_t>> pieces);

  // Returns the child of a node for this byte, or kNone.
  int32_t child(int32_t node, char byte) const {
    const int32_t next = nodes_[node].base ^ static_cast<unsigned char>(byte);
    return nodes_[next].parent == node ? next : kNone;
  }
  // Returns the id of the text that ends at this node, or kNone.
  int32_t id(int32_t node) const { return nodes_[node].id; }
  // Returns the id of the whole text, or kNone.
  int32_t find(std::string_view text) const {
    int32_t node = kRoot;
    for (size_t i = 0; i < text.size() && node != kNone; i++) node = child(node, text[i]);
    return node == kNone ? kNone : id(node);
  }

 private:
  class Builder;
  // The child for a byte is at base ^ byte, if it names this node as its parent. The array is made of whole
  // blocks of 256 nodes, so the index needs no bounds check.
  struct Node {
    int32_t base = 0, parent = kNone, id = kNone;
  };
  std::vector<Node> nodes_;
};

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

// A buffer whose size is known only at run time and is usually small. It lies on the stack if it fits.

// The values are not initialised. T must not need a constructor.
template <typename T, size_t kOnStack>
class SmallBuffer {
 public:
  explicit SmallBuffer(size_t size)
      : heap_(size > kOnStack ? std::make_unique_for_overwrite<T[]>(size) : nullptr),
        data_(heap_ ? heap_.get() : stack_.data()) {}
  SmallBuffer(const SmallBuffer&) = delete;
  SmallBuffer& operator=(const SmallBuffer&) = delete;

  T& operator[](size_t i) { return data_[i]; }
  T* data() { return data_; }

 private:
  std::array<T, kOnStack> stack_;
  std::unique_ptr<T[]> heap_;
  T* data_;
};

}  // namespace trainer
