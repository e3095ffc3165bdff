// Translation edit rate (Snover et al., "A study of translation edit rate with targeted human annotation",
// 2006): how many words must be inserted, removed, replaced or moved as blocks until the prediction is the
// target, for each word of the target. The search for moves is greedy, and its limits and the order of
// preference among moves are those of sacrebleu 2.6, metrics/lib_ter.py, which follow Tercom's.
#include <algorithm>
#include <cmath>
#include <compare>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/metrics/metric.h"
#include "text/metrics/ngrams.h"
#include "text/unicode/unicode.h"

namespace trainer {
namespace {

using Word = int32_t;  // the number of a word: comparing numbers is faster
using Sentence = std::vector<Word>;

constexpr int64_t kLongestMove = 10, kFurthestMove = 50, kBeam = 25, kMostCandidates = 1000;
constexpr int64_t kUnreached = std::numeric_limits<int32_t>::max();

// How a prefix of the prediction becomes a prefix of the target, the last step of it.
enum class Edit { none, keep, replace, remove, insert };
struct Cell {
  int64_t cost = kUnreached;
  Edit last = Edit::none;
};
using Row = std::vector<Cell>;

// Edits without moves from a prediction to the target. Only cells near the diagonal are computed.
class EditTable {
 public:
  explicit EditTable(const Sentence& target) : target_(target) {
    first_.resize(target.size() + 1);
    for (size_t j = 0; j < first_.size(); j++) first_[j] = {static_cast<int64_t>(j), Edit::insert};
  }

  // Fills the table for `words`, and returns the number of edits.
  int64_t fill(const Sentence& words) {
    rows_.assign(1, first_);
    words_ = words;
    for (size_t i = 1; i <= words.size(); i++) rows_.push_back(next_row(rows_.back(), words, i));
    return rows_.back().back().cost;
  }

  // The number of edits for other words of the same count. Rows of the words that both begin with are taken
  // from the table.
  int64_t cost_of(const Sentence& words) const {
    const auto differ = std::ranges::mismatch(words, words_).in1;
    const size_t same = static_cast<size_t>(differ - words.begin());
    Row row = rows_[same];
    for (size_t i = same + 1; i <= words.size(); i++) row = next_row(row, words, i);
    return row.back().cost;
  }

  // The edits of the filled table, first to last.
  std::vector<Edit> edits() const {
    std::vector<Edit> out;
    for (size_t i = rows_.size() - 1, j = target_.size(); i > 0 || j > 0;) {
      const Edit edit = rows_[i][j].last;
      out.push_back(edit);
      if (edit != Edit::insert) i--;
      if (edit != Edit::remove) j--;
    }
    std::ranges::reverse(out);
    return out;
  }

 private:
  Row next_row(const Row& above, const Sentence& words, size_t i) const {
    const auto all = static_cast<int64_t>(target_.size());
    const double ratio = static_cast<double>(all) / static_cast<double>(words.size());
    const int64_t beam = kBeam < ratio / 2 ? static_cast<int64_t>(std::ceil(ratio / 2 + kBeam)) : kBeam;
    const auto diagonal = static_cast<int64_t>(std::floor(static_cast<double>(i) * ratio));
    const int64_t begin = std::max<int64_t>(0, diagonal - beam);
    const int64_t end = i == words.size() ? all + 1 : std::min(all + 1, diagonal + beam);
    Row row(target_.size() + 1);
    for (int64_t place = begin; place < end; place++) {
      const auto j = static_cast<size_t>(place);
      const auto take = [&](int64_t cost, Edit edit) {
        if (cost < row[j].cost) row[j] = {cost, edit};
      };
      if (j > 0) {
        const bool same = words[i - 1] == target_[j - 1];
        take(above[j - 1].cost + (same ? 0 : 1), same ? Edit::keep : Edit::replace);
      }
      take(above[j].cost + 1, Edit::remove);
      if (j > 0) take(row[j - 1].cost + 1, Edit::insert);
    }
    return row;
  }

  const Sentence& target_;
  Row first_;
  Sentence words_;
  std::vector<Row> rows_;
};

// Which word of the prediction stands for each word of the target (-1: none yet), and which words are wrong.
struct Alignment {
  std::vector<int64_t> place;
  std::vector<bool> wrong_in_target, wrong_in_words;

  explicit Alignment(const std::vector<Edit>& edits) {
    for (const Edit edit : edits) {
      const bool wrong = edit != Edit::keep;
      if (edit != Edit::insert) wrong_in_words.push_back(wrong);
      if (edit == Edit::remove) continue;
      wrong_in_target.push_back(wrong);
      place.push_back(static_cast<int64_t>(wrong_in_words.size()) - 1);
    }
  }
};

bool any(const std::vector<bool>& flags, int64_t begin, int64_t count) {
  return std::find(flags.begin() + begin, flags.begin() + begin + count, true) !=
         flags.begin() + begin + count;
}

// Moves words [begin, begin + count) to before word `to`. Where that lies within the block, it moves by so
// many words to the right.
Sentence moved(const Sentence& words, int64_t begin, int64_t count, int64_t to) {
  const auto size = static_cast<int64_t>(words.size());
  Sentence out = words;
  const auto at = [&](int64_t place) { return out.begin() + std::min(place, size); };
  if (to < begin) {
    std::rotate(at(to), at(begin), at(begin + count));
  } else {
    std::rotate(at(begin), at(begin + count), at(to > begin + count ? to : count + to));
  }
  return out;
}

struct Move {
  int64_t gain = 0, length = 0, begin = 0, to = 0;
  Sentence words;
  // The highest gain first, then the longest block, then the earliest place, then the earliest target.
  std::strong_ordering operator<=>(const Move& other) const {
    return std::tuple(gain, length, -begin, -to) <=>
           std::tuple(other.gain, other.length, -other.begin, -other.to);
  }
  bool operator==(const Move& other) const { return std::is_eq(*this <=> other); }
};

// The best move of one block that also occurs in the target. Counts the moves that were tried.
class MoveSearch {
 public:
  MoveSearch(const Sentence& words, const Sentence& target, EditTable& table, int64_t& tried)
      : words_(words),
        target_(target),
        table_(table),
        tried_(tried),
        edits_(table.fill(words)),
        aligned_(table.edits()) {}

  std::optional<Move> best() {
    const auto words = static_cast<int64_t>(words_.size()), target = static_cast<int64_t>(target_.size());
    for (int64_t begin = 0; begin < words; begin++) {
      for (int64_t place = 0; place < target; place++) {
        if (std::abs(place - begin) > kFurthestMove) continue;
        for (int64_t length = 1; length <= kLongestMove && begin + length <= words &&
                                 place + length <= target && same(begin, place, length);
             length++) {
          if (!try_block(begin, place, length)) continue;
          if (tried_ >= kMostCandidates) return best_;
        }
      }
    }
    return best_;
  }

 private:
  bool same(int64_t begin, int64_t place, int64_t length) const {
    return words_[static_cast<size_t>(begin + length - 1)] ==
           target_[static_cast<size_t>(place + length - 1)];
  }

  // Returns whether the block is wrong on both sides and not in its place already.
  bool try_block(int64_t begin, int64_t place, int64_t length) {
    if (!any(aligned_.wrong_in_words, begin, length) || !any(aligned_.wrong_in_target, place, length))
      return false;
    const int64_t now = aligned_.place[static_cast<size_t>(place)];
    if (begin <= now && now < begin + length) return false;
    int64_t before = -1;
    for (int64_t offset = -1; offset < length; offset++) {
      const int64_t to = place + offset == -1 ? 0 : aligned_.place[static_cast<size_t>(place + offset)] + 1;
      if (to == before) continue;
      before = to;
      Move move{.length = length, .begin = begin, .to = to, .words = moved(words_, begin, length, to)};
      move.gain = edits_ - table_.cost_of(move.words);
      tried_++;
      if (!best_ || move > *best_) best_ = std::move(move);
    }
    return true;
  }

  const Sentence &words_, &target_;
  EditTable& table_;
  int64_t& tried_;
  int64_t edits_;
  Alignment aligned_;
  std::optional<Move> best_;
};

int64_t edits_with_moves(Sentence words, const Sentence& target) {
  if (target.empty()) return static_cast<int64_t>(words.size());
  EditTable table(target);
  int64_t moves = 0, tried = 0;
  while (true) {
    std::optional<Move> move = MoveSearch(words, target, table, tried).best();
    if (tried >= kMostCandidates || !move || move->gain <= 0) break;
    words = std::move(move->words);
    moves++;
  }
  return moves + table.fill(words);
}

class Ter final : public Metric {
 public:
  size_t size() const override { return 2; }

  // Edits, and words of the target.
  void measure(std::string_view prediction, std::string_view target, std::span<double> out) const override {
    const std::string predicted_text = lower(prediction), target_text = lower(target);
    std::unordered_map<std::string_view, Word> numbers;
    const auto numbered = [&](std::string_view text) {
      Sentence out;
      for (const std::string_view word : metrics::words(text))
        out.push_back(numbers.emplace(word, static_cast<Word>(numbers.size())).first->second);
      return out;
    };
    const Sentence expected = numbered(target_text);
    out[0] = static_cast<double>(edits_with_moves(numbered(predicted_text), expected));
    out[1] = static_cast<double>(expected.size());
  }

  // Against empty targets any edit counts as 100 %.
  void score(std::span<const double> sums, double, Scores& out) const override {
    const double rate = sums[1] > 0 ? sums[0] / sums[1] : sums[0] > 0 ? 1 : 0;
    out.emplace_back("ter", 100 * rate);
  }
};

}  // namespace

std::unique_ptr<Metric> ter_metric() { return std::make_unique<Ter>(); }

}  // namespace trainer
