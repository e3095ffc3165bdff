#include "text/unigram.h"

#include <algorithm>

#include "text/utf8.h"

namespace trainer {
namespace {

constexpr double kUnknownPenalty = 10;  // below the worst piece

}  // namespace

Unigram::Unigram(const std::vector<Piece>& pieces, int32_t unk) : unk_(unk) {
  double worst = 0;
  for (size_t id = 0; id < pieces.size(); id++) {
    if (!pieces[id].text.empty()) trie_.insert(pieces[id].text, static_cast<int32_t>(id));
    scores_.push_back(pieces[id].score);
    worst = id == 0 ? pieces[id].score : std::min(worst, pieces[id].score);
  }
  unk_score_ = worst - kUnknownPenalty;
}

void Unigram::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (cache_.find(word, ids)) return;
  std::vector<int32_t> path = best_path(word);
  ids.insert(ids.end(), path.begin(), path.end());
  cache_.insert(word, std::move(path));
}

// Viterbi, left to right. Of equal sums the one found first stays.
std::vector<int32_t> Unigram::best_path(std::string_view word) const {
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
    if (!covered) offer(next, unk_, unk_score_);
    begin = next;
  }
  std::vector<int32_t> path;
  for (auto end = static_cast<int64_t>(word.size()); end > 0; end = ends[end].begin) {
    const int32_t id = ends[end].id;
    if (id != unk_ || path.empty() || path.back() != unk_) path.push_back(id);
  }
  std::ranges::reverse(path);
  return path;
}

}  // namespace trainer
