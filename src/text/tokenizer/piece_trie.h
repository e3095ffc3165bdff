// A fixed set of byte strings, each with an id, as a double array (Aoe 1989). A search goes byte by byte;
// each step is one load from memory.
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

}  // namespace trainer
