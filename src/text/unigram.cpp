#include "text/unigram.h"

#include <algorithm>
#include <limits>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "text/utf8.h"

namespace trainer {
namespace {

constexpr double kUnknownPenalty = 10;  // below the worst piece

}  // namespace

Unigram::Unigram(const UnigramModel& model) : unk_(model.unk) {
  // Of equal pieces the last one counts, and the trie keeps the first that it gets.
  for (size_t id = model.pieces.size(); id-- > 0;) {
    if (!model.pieces[id].text.empty()) trie_.insert(model.pieces[id].text, static_cast<int32_t>(id));
  }
  double worst = std::numeric_limits<double>::infinity();
  for (const auto& piece : model.pieces) {
    scores_.push_back(piece.score);
    worst = std::min(worst, piece.score);
  }
  unk_score_ = worst - kUnknownPenalty;
  if (model.byte_fallback) byte_tokens_ = ByteTokens([&](std::string_view name) { return find(name); });
}

void Unigram::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (cache_.find(word, ids)) return;
  std::vector<int32_t> found = ids_of(word, best_path(word));
  ids.insert(ids.end(), found.begin(), found.end());
  cache_.insert(word, std::move(found));
}

std::optional<int32_t> Unigram::find(std::string_view piece) const {
  int32_t node = Trie::kRoot;
  for (size_t i = 0; i < piece.size() && node != Trie::kNone; i++) node = trie_.child(node, piece[i]);
  return node == Trie::kNone || trie_.id(node) == Trie::kNone ? std::nullopt : std::optional(trie_.id(node));
}

// An unknown stretch that is a piece all the same is the text "<unk>" itself.
std::vector<int32_t> Unigram::ids_of(std::string_view word, const std::vector<Cut>& path) const {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < path.size(); i++) {
    if (path[i].id != unk_) {
      ids.push_back(path[i].id);
      continue;
    }
    const size_t begin = path[i].begin;
    while (i + 1 < path.size() && path[i + 1].id == unk_) i++;
    const std::string_view unknown = word.substr(begin, path[i].end - begin);
    if (const auto id = find(unknown)) {
      ids.push_back(*id);
    } else if (!byte_tokens_.append(unknown, ids)) {
      ids.push_back(*unk_);
    }
  }
  return ids;
}

// Viterbi, left to right. Of equal sums the one found first stays.
std::vector<Unigram::Cut> Unigram::best_path(std::string_view word) const {
  struct End {
    double score = 0;
    int64_t begin = -1;  // of the last piece; -1: nothing ends here
    int32_t id = 0;
  };
  std::vector<End> ends(word.size() + 1);
  for (size_t begin = 0; begin < word.size();) {
    const double score = ends[begin].score;
    const auto offer = [&](size_t end, int32_t id, double piece_score) {
      if (ends[end].begin >= 0 && score + piece_score <= ends[end].score) return;
      ends[end] = {score + piece_score, static_cast<int64_t>(begin), id};
    };
    size_t next = begin;
    next_code_point(word, next);
    bool covered = false;  // by a piece of one character
    int32_t node = Trie::kRoot;
    for (size_t end = begin; end < word.size();) {
      node = trie_.child(node, word[end++]);
      if (node == Trie::kNone) break;
      const int32_t id = trie_.id(node);
      if (id == Trie::kNone) continue;
      offer(end, id, scores_[id]);
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
  std::vector<Cut> path;
  for (size_t end = word.size(); end > 0; end = static_cast<size_t>(ends[end].begin))
    path.push_back({static_cast<size_t>(ends[end].begin), end, ends[end].id});
  std::ranges::reverse(path);
  return path;
}

}  // namespace trainer
