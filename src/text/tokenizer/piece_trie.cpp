#include "text/tokenizer/piece_trie.h"

#include <algorithm>

namespace trainer {

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
