// A fixed set of byte strings with an id each, walked byte by byte: a double array (Aoe 1989). A step is one
// load.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace trainer {

class PieceTrie {
 public:
  static constexpr int32_t kRoot = 0, kNone = -1;

  // Of equal texts the last one counts; empty ones are left out.
  explicit PieceTrie(std::span<const std::pair<std::string_view, int32_t>> pieces);

  // The child of a node for this byte, or kNone.
  int32_t child(int32_t node, char byte) const {
    const int32_t next = nodes_[node].base ^ static_cast<unsigned char>(byte);
    return nodes_[next].parent == node ? next : kNone;
  }
  // The id of the text that ends here, or kNone.
  int32_t id(int32_t node) const { return nodes_[node].id; }
  // Of the whole text, or kNone.
  int32_t find(std::string_view text) const {
    int32_t node = kRoot;
    for (size_t i = 0; i < text.size() && node != kNone; i++) node = child(node, text[i]);
    return node == kNone ? kNone : id(node);
  }

 private:
  class Builder;
  // The child for a byte is at base ^ byte, if it names this node as its parent. Blocks of 256 nodes are
  // complete, so no bound needs a check.
  struct Node {
    int32_t base = 0, parent = kNone, id = kNone;
  };
  std::vector<Node> nodes_;
};

}  // namespace trainer
