// The functions of Python's str that the metrics use.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trainer::metrics {

// str.split(): the words between white space. The views point into `text`.
std::vector<std::string_view> words(std::string_view text);
// The same words joined by one space: " ".join(text.split()).
std::string single_spaced(std::string_view text);
// str.strip(), str.rstrip()
std::string_view strip(std::string_view text);
std::string_view strip_end(std::string_view text);

// Counts n-grams, and compares two counts.

// n-gram of characters or words (a part of the text) -> how often it occurs.
using Counts = std::unordered_map<std::string_view, int64_t>;

// Counts the n-grams of consecutive pieces of one text. An n-gram is the text from the begin of its first
// piece to the end of its last. Texts can be compared, because the text between two pieces is always the
// same.
inline Counts count_runs(const std::vector<std::string_view>& pieces, size_t n) {
  Counts counts;
  for (size_t i = 0; i + n <= pieces.size(); i++)
    counts[std::string_view(pieces[i].begin(), pieces[i + n - 1].end())]++;
  return counts;
}

// Returns the number of n-grams in so many pieces.
inline int64_t runs(size_t pieces, size_t n) { return pieces < n ? 0 : static_cast<int64_t>(pieces - n + 1); }

// Returns the sum of the smaller count over all n-grams.
inline int64_t overlap(const Counts& a, const Counts& b) {
  int64_t sum = 0;
  for (const auto& [run, count] : a) {
    const auto found = b.find(run);
    if (found != b.end()) sum += std::min(count, found->second);
  }
  return sum;
}

// Returns the harmonic mean of precision (matches / predicted) and recall (matches / expected); 0 without
// matches.
inline double f_measure(int64_t matches, int64_t predicted, int64_t expected) {
  if (matches == 0) return 0;
  const double precision = static_cast<double>(matches) / static_cast<double>(predicted);
  const double recall = static_cast<double>(matches) / static_cast<double>(expected);
  return 2 * precision * recall / (precision + recall);
}

}  // namespace trainer::metrics
