#include "data/few_forms.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace trainer {
namespace {

// An eighth of the tokens, and of labels, is padding at most, and half of that on average. Kernels loop over
// samples, so that many more would leave parts of a GPU idle.
constexpr int64_t kTokenSizes = 8, kSampleSizes = 4, kLabelSizes = 8;

int64_t padding_of(const std::vector<int64_t>& lengths) {
  const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  return size_of_row(tokens) - tokens;
}

}  // namespace

int64_t one_of_few_sizes(int64_t n, int64_t parts) {
  if (n <= parts) return n;
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n)));
  const int64_t step = std::max<int64_t>(power / parts, 1);
  return (n + step - 1) / step * step;
}

int64_t size_of_row(int64_t tokens) { return one_of_few_sizes(tokens, kTokenSizes); }

void add_padding_samples(std::vector<int64_t>& lengths, std::vector<int64_t>& targets) {
  const int64_t longest = std::ranges::max(lengths), longest_target = std::ranges::max(targets);
  int64_t rest = padding_of(lengths), rest_of_targets = padding_of(targets);
  while (rest > 0 || rest_of_targets > 0) {
    lengths.push_back(std::min(rest, longest));
    targets.push_back(std::min(rest_of_targets, longest_target));
    rest -= lengths.back();
    rest_of_targets -= targets.back();
  }
  const auto samples = static_cast<size_t>(one_of_few_sizes(std::ssize(lengths), kSampleSizes));
  lengths.resize(samples);
  targets.resize(samples);
}

void add_padding_rows(std::vector<int64_t>& rows, int64_t tokens) {
  const size_t taken = rows.size();
  const auto count = static_cast<size_t>(std::min(one_of_few_sizes(std::ssize(rows), kLabelSizes), tokens));
  size_t next = 0;
  for (int64_t row = 0; rows.size() < count; row++) {
    if (next < taken && rows[next] == row) {
      next++;
    } else {
      rows.push_back(row);
    }
  }
}

}  // namespace trainer
