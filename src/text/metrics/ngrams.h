// Counts n-grams, and compares two counts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trainer::metrics {

// An n-gram of characters or words, as the part of the text that holds it.
using Counts = std::unordered_map<std::string_view, int64_t>;

// The n-grams of pieces that follow each other in one text: from the begin of one to the end of another.
// Equal n-grams are equal texts, because the text between pieces is always the same.
inline Counts count_runs(const std::vector<std::string_view>& pieces, size_t n) {
  Counts counts;
  for (size_t i = 0; i + n <= pieces.size(); i++)
    counts[std::string_view(pieces[i].begin(), pieces[i + n - 1].end())]++;
  return counts;
}

// The number of n-grams of `pieces`.
inline int64_t runs(size_t pieces, size_t n) { return pieces < n ? 0 : static_cast<int64_t>(pieces - n + 1); }

// The sum over all n-grams of the smaller count.
inline int64_t overlap(const Counts& a, const Counts& b) {
  int64_t sum = 0;
  for (const auto& [run, count] : a) {
    const auto found = b.find(run);
    if (found != b.end()) sum += std::min(count, found->second);
  }
  return sum;
}

// The harmonic mean of precision (matches / predicted) and recall (matches / expected); 0 without matches.
inline double f_measure(int64_t matches, int64_t predicted, int64_t expected) {
  if (matches == 0) return 0;
  const double precision = static_cast<double>(matches) / static_cast<double>(predicted);
  const double recall = static_cast<double>(matches) / static_cast<double>(expected);
  return 2 * precision * recall / (precision + recall);
}

}  // namespace trainer::metrics
