#include "text/tokenizer/unigram.h"

#include <algorithm>
#include <limits>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/utf8.h"

namespace trainer {
namespace {

constexpr double kUnknownPenalty = 10;  // subtracted from the lowest score
constexpr size_t kNowhere = static_cast<size_t>(-1);

PieceTrie trie_of(const std::vector<UnigramModel::Piece>& pieces) {
  std::vector<std::pair<std::string_view, int32_t>> texts;
  texts.reserve(pieces.size());
  for (const auto& piece : pieces) texts.emplace_back(piece.text, static_cast<int32_t>(texts.size()));
  return PieceTrie(texts);
}

}  // namespace

Unigram::Unigram(const UnigramModel& model) : trie_(trie_of(model.pieces)), unk_(model.unk) {
  double worst = std::numeric_limits<double>::infinity();
  for (const auto& piece : model.pieces) {
    scores_.push_back(piece.score);
    worst = std::min(worst, piece.score);
  }
  unk_score_ = worst - kUnknownPenalty;
  if (!model.byte_fallback) return;
  byte_tokens_ = ByteTokens([&](std::string_view name) {
    const int32_t id = trie_.find(name);
    return id == PieceTrie::kNone ? std::nullopt : std::optional(id);
  });
}

void Unigram::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (cache_.find(word, ids)) return;
  SmallBuffer<End, 128> ends(word.size() + 1);
  find_best(word, ends.data());
  const size_t before = ids.size();
  append(word, ends.data(), ids);
  cache_.insert(word, std::span(ids).subspan(before));
}

// Viterbi search from left to right. Of equal sums, the one that was found first counts.
void Unigram::find_best(std::string_view word, End* ends) const {
  ends[0].score = 0;
  for (size_t end = 1; end <= word.size(); end++) ends[end].begin = kNowhere;
  for (size_t begin = 0; begin < word.size();) {
    const double score = ends[begin].score;
    const auto offer = [&](size_t end, int32_t id, double piece_score) {
      const double sum = score + piece_score;
      if (ends[end].begin == kNowhere || sum > ends[end].score) ends[end] = {sum, begin, id};
    };
    const size_t next = begin + character_length(word, begin);
    bool covered = false;  // by a piece of one character
    int32_t node = PieceTrie::kRoot;
    for (size_t end = begin; end < word.size();) {
      node = trie_.child(node, word[end++]);
      if (node == PieceTrie::kNone) break;
      const int32_t id = trie_.id(node);
      if (id == PieceTrie::kNone) continue;
      offer(end, id, scores_[static_cast<size_t>(id)]);
      covered = covered || end == next;
    }
    if (!covered) {
      if (!unk_) {
        throw DataError(concat("the tokenizer has no token for '", word.substr(begin, next - begin),
                               "' and none for unknown text (model.unk_id)"));
      }
      offer(next, *unk_, unk_score_);
    }
    begin = next;
  }
}

void Unigram::append(std::string_view word, const End* ends, std::vector<int32_t>& ids) const {
  const size_t before = ids.size();
  bool unknown = false;
  for (size_t end = word.size(); end > 0; end = ends[end].begin) {
    ids.push_back(ends[end].id);
    unknown = unknown || ends[end].id == unk_;
  }
  std::reverse(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end());
  if (!unknown) return;
  // Go over the pieces again and join adjacent unknown ones.
  std::vector<size_t> borders{word.size()};
  while (borders.back() > 0) borders.push_back(ends[borders.back()].begin);
  std::ranges::reverse(borders);
  ids.resize(before);
  for (size_t i = 0; i + 1 < borders.size(); i++) {
    const auto id_of_piece = [&](size_t piece) { return ends[borders[piece + 1]].id; };
    if (id_of_piece(i) != unk_) {
      ids.push_back(id_of_piece(i));
      continue;
    }
    const size_t begin = borders[i];
    while (i + 2 < borders.size() && id_of_piece(i + 1) == unk_) i++;
    append_unknown(word.substr(begin, borders[i + 1] - begin), ids);
  }
}

// Unknown text can still be a piece: the text "<unk>" itself.
void Unigram::append_unknown(std::string_view text, std::vector<int32_t>& ids) const {
  const int32_t id = trie_.find(text);
  if (id != PieceTrie::kNone) {
    ids.push_back(id);
  } else if (!byte_tokens_.append(text, ids)) {
    ids.push_back(*unk_);
  }
}

class PieceTrie::Builder {
 public:
  using Piece = std::pair<std::string_view, int32_t>;

  Builder(std::span<const Piece> pieces, std::vector<Node>& nodes) : nodes_(nodes) {
    for (const Piece& piece : pieces) {
      if (!piece.first.empty()) pieces_.push_back(piece);
    }
    std::ranges::stable_sort(pieces_, {}, &Piece::first);
    add_block();
    nodes_[kRoot].parent = kNoParent;
    std::vector<Range> open{{kRoot, 0, pieces_.size(), 0}};
    while (!open.empty()) {
      const Range range = open.back();
      open.pop_back();
      place_children(range, open);
    }
  }

 private:
  static constexpr int32_t kNoParent = -2;  // not free, and without a parent
  // A node stands for the first `depth` bytes of the pieces from `begin` to `end`, which are sorted.
  struct Range {
    int32_t node;
    size_t begin, end, depth;
  };
  struct Child {
    unsigned char byte;
    size_t begin, end;
  };

  void add_block() { nodes_.resize(nodes_.size() + 256); }

  void place_children(Range range, std::vector<Range>& open) {
    const auto& [node, begin, end, depth] = range;
    size_t first = begin;
    for (; first < end && pieces_[first].first.size() == depth; first++)
      nodes_[node].id = pieces_[first].second;
    std::vector<Child> children;
    for (size_t i = first; i < end; i++) {
      const auto byte = static_cast<unsigned char>(pieces_[i].first[depth]);
      if (children.empty() || children.back().byte != byte) children.push_back({byte, i, i});
      children.back().end = i + 1;
    }
    if (children.empty()) return;
    const int32_t base = find_base(children);
    nodes_[node].base = base;
    for (const Child& child : children) {
      nodes_[base ^ child.byte].parent = node;
      open.push_back({base ^ child.byte, child.begin, child.end, depth + 1});
    }
  }

  // Returns a base for which the places of all children are free. The search begins at the first place that
  // is not given up; a place that was tried in vain many times is given up.
  int32_t find_base(const std::vector<Child>& children) {
    for (size_t place = first_free_;; place++) {
      if (place == nodes_.size()) add_block();
      if (nodes_[place].parent != kNone) {
        if (place == first_free_) first_free_++;
        continue;
      }
      const auto base = static_cast<int32_t>(place) ^ children.front().byte;
      const auto is_free = [&](const Child& child) {
        return nodes_[static_cast<size_t>(base ^ child.byte)].parent == kNone;
      };
      if (std::ranges::all_of(children, is_free)) return base;
      if (place - first_free_ > kMostTries) first_free_ = place - kMostTries / 2;
    }
  }

  static constexpr size_t kMostTries = 1024;
  std::vector<Piece> pieces_;
  std::vector<Node>& nodes_;
  size_t first_free_ = 1;
};

PieceTrie::PieceTrie(std::span<const std::pair<std::string_view, int32_t>> pieces) {
  Builder(pieces, nodes_);
}

}  // namespace trainer
