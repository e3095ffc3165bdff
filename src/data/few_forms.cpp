#include "data/few_forms.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace trainer {
namespace {

// An eighth of the tokens at most is padding, and half of that on average. Kernels loop over samples, so that
// many more would leave parts of a GPU idle. A chunk of logits costs little beside the model.
constexpr int64_t kTokenSizes = 8, kSampleSizes = 4, kLabelSizes = 4;

int64_t sum_of(const std::vector<int64_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

int64_t padding_of(const std::vector<int64_t>& lengths) {
  const int64_t tokens = sum_of(lengths);
  return one_of_few_sizes(tokens, kTokenSizes) - tokens;
}

}  // namespace

int64_t one_of_few_sizes(int64_t n, int64_t parts) {
  if (n <= parts) return n;
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n)));
  const int64_t step = std::max<int64_t>(power / parts, 1);
  return (n + step - 1) / step * step;
}

void add_padding_samples(std::vector<int64_t>& lengths, std::vector<int64_t>& targets) {
  const int64_t more = padding_of(lengths), more_targets = padding_of(targets);
  if (more > 0 || more_targets > 0) {
    lengths.push_back(more);
    targets.push_back(more_targets);
  }
  const auto samples = static_cast<size_t>(one_of_few_sizes(std::ssize(lengths), kSampleSizes));
  lengths.resize(samples);
  targets.resize(samples);
}

int64_t padded_labels(int64_t labels, int64_t tokens) {
  return std::min(one_of_few_sizes(labels, kLabelSizes), tokens);
}

int64_t first_free(const std::vector<int64_t>& rows) {
  int64_t free = 0;
  while (free < std::ssize(rows) && rows[static_cast<size_t>(free)] == free) free++;
  return free;
}

}  // namespace trainer
