#include "text/tokenizer/trie.h"

namespace trainer {

void Trie::insert(std::string_view text, int32_t id) {
  int32_t node = kRoot;
  for (char byte : text) {
    int32_t next = child(node, byte);
    if (next == kNone) {
      next = static_cast<int32_t>(nodes_.size());
      if (node == kRoot) {
        starts_[static_cast<unsigned char>(byte)] = next;
      } else {
        nodes_[node].children.emplace_back(byte, next);
      }
      nodes_.emplace_back();
    }
    node = next;
  }
  if (nodes_[node].id == kNone) nodes_[node].id = id;
}

int32_t Trie::child(int32_t node, char byte) const {
  if (node == kRoot) {
    const int32_t next = starts_[static_cast<unsigned char>(byte)];
    return next == 0 ? kNone : next;
  }
  for (const auto& [key, next] : nodes_[node].children) {
    if (key == byte) return next;
  }
  return kNone;
}

}  // namespace trainer
