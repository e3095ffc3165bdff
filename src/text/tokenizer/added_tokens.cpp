#include "text/tokenizer/added_tokens.h"

#include <algorithm>
#include <unordered_set>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/utf8.h"
#include "text/unicode/unicode.h"

namespace trainer {
namespace {

// Returns where the character before text[end] begins; end > 0.
size_t previous(std::string_view text, size_t end) {
  do end--;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80);
  return end;
}

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  if (begin > 0) {
    size_t at = previous(text, begin);
    if (is_word_character(next_code_point(text, at))) return false;
  }
  return end == text.size() || !is_word_character(next_code_point(text, end));
}

size_t skip_blanks_back(std::string_view text, size_t end, size_t limit) {
  while (end > limit) {
    const size_t begin = previous(text, end);
    size_t at = begin;
    if (!is_white_space(next_code_point(text, at))) break;
    end = begin;
  }
  return end;
}

size_t skip_blanks(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    size_t next = begin;
    if (!is_white_space(next_code_point(text, next))) break;
    begin = next;
  }
  return begin;
}

// Does normalization make spaces of a token's line ends and tabs, or its blanks of others? The token would be
// found wherever those are.
bool loses_blanks(std::string_view content, const std::string& normalized) {
  if (skip_blanks(content, 0) == content.size()) return true;
  for (size_t at = 0; at < content.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(content, at);
    if (c != ' ' && is_white_space(c) &&
        normalized.find(content.substr(begin, at - begin)) == std::string::npos)
      return true;
  }
  return false;
}

struct Match {
  size_t begin, end;
  int32_t id;
};

// Returns the longest of the leftmost matches that begin at `from` or later.
std::optional<Match> find_match(const Trie& trie, std::string_view text, size_t from) {
  for (size_t begin = from; begin < text.size(); begin++) {
    if (!trie.has_start(text[begin])) continue;
    Match longest{begin, begin, Trie::kNone};
    int32_t node = Trie::kRoot;
    for (size_t end = begin; end < text.size();) {
      node = trie.child(node, text[end++]);
      if (node == Trie::kNone) break;
      if (trie.id(node) != Trie::kNone) longest = {begin, end, trie.id(node)};
    }
    if (longest.id != Trie::kNone) return longest;
  }
  return std::nullopt;
}

}  // namespace

void AddedTokens::add(const AddedToken& token, int32_t id) {
  if (token.content.empty()) return;
  ids_[token.content] = id;
  tokens_.insert_or_assign(id, token);
  largest_id_ = std::max(largest_id_, id);
}

void AddedTokens::add(const AddedToken& token, std::optional<int32_t> vocabulary_id, int32_t vocabulary_size,
                      std::optional<int32_t> stated_id, const std::string& where) {
  const std::optional<int32_t> known = id_of(token.content) ? id_of(token.content) : vocabulary_id;
  const int32_t id = known.value_or(std::max(vocabulary_size, largest_id_ + 1));
  if (stated_id && *stated_id != id) {
    throw FormatError(concat(where, ": token '", token.content, "' has the id ", *stated_id,
                             ", but the rest of the vocabulary gives it ", id));
  }
  add(token, id);
}

void AddedTokens::add(const std::vector<std::string>& contents,
                      const std::function<std::string(std::string_view)>& normalize,
                      const std::function<std::optional<int32_t>(std::string_view)>& find,
                      int32_t vocabulary_size) {
  for (const std::string& content : contents) {
    if (id_of(content)) continue;
    const bool normalized = !loses_blanks(content, normalize(content));
    add({.content = content, .normalized = normalized}, find(content), vocabulary_size, std::nullopt, "");
  }
}

void AddedTokens::prepare(const std::function<std::string(std::string_view)>& normalize) {
  raw_ = normalized_ = {};
  has_normalized_ = false;
  prepared_.clear();
  std::unordered_set<std::string_view> special;
  for (const auto& [id, token] : tokens_) {
    if (token.special) special.insert(token.content);
  }
  for (const auto& [id, token] : tokens_) {
    std::string text = token.normalized ? normalize(token.content) : token.content;
    (token.normalized ? normalized_ : raw_).insert(text, id);
    has_normalized_ = has_normalized_ || token.normalized;
    const bool is_special = special.contains(text);
    prepared_.insert_or_assign(id, Prepared{std::move(text), is_special});
  }
}

std::optional<int32_t> AddedTokens::id_of(std::string_view content) const {
  const auto found = ids_.find(std::string(content));
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const std::string* AddedTokens::text_of(int32_t id) const {
  const auto found = prepared_.find(id);
  return found == prepared_.end() ? nullptr : &found->second.text;
}

bool AddedTokens::is_special(int32_t id) const {
  const auto found = prepared_.find(id);
  return found != prepared_.end() && found->second.special;
}

void AddedTokens::split(std::string_view text, bool normalized, std::vector<Piece>& pieces) const {
  const Trie& trie = normalized ? normalized_ : raw_;
  size_t done = 0;
  for (auto match = find_match(trie, text, 0); match; match = find_match(trie, text, match->end)) {
    const AddedToken& token = tokens_.at(match->id);
    size_t begin = match->begin, end = match->end;
    if (token.single_word && !stands_alone(text, begin, end)) continue;
    if (token.lstrip) begin = skip_blanks_back(text, begin, done);
    if (token.rstrip) end = skip_blanks(text, end);
    if (begin > done) pieces.push_back({text.substr(done, begin - done), -1});
    pieces.push_back({text.substr(begin, end - begin), match->id});
    done = end;
  }
  if (done < text.size()) pieces.push_back({text.substr(done), -1});
}

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
