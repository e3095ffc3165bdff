// A set of byte strings, each with an id, searched byte by byte.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace trainer {

class Trie {
 public:
  static constexpr int32_t kRoot = 0, kNone = -1;

  // If a string is inserted twice, the first one counts.
  void insert(std::string_view text, int32_t id);
  // Returns the child of a node for this byte, or kNone.
  int32_t child(int32_t node, char byte) const;
  // Returns the id of the string that ends at this node, or kNone.
  int32_t id(int32_t node) const { return nodes_[node].id; }
  bool has_start(char byte) const { return child(kRoot, byte) != kNone; }

 private:
  struct Node {
    std::vector<std::pair<char, int32_t>> children;
    int32_t id = kNone;
  };
  std::vector<Node> nodes_{1};
  std::array<int32_t, 256> starts_{};  // the children of the root; 0: none
};

}  // namespace trainer
