// As in rouge_score 0.1.2: tokenize.py without stemmer, rouge_scorer.py.
#include <vector>

#include "trainer/text/metrics.h"

#include "text/metrics/ngrams.h"
#include "text/metrics/words.h"
#include "text/unicode/letter_case.h"

namespace trainer {
namespace {

using Words = std::vector<std::string_view>;

// Returns the text in lower case, with one space for each run of characters other than ASCII letters and
// digits.
std::string rouge_text(std::string_view text) {
  std::string out = lower(text);
  for (char& c : out) {
    if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9')) c = ' ';
  }
  return metrics::single_spaced(out);
}

double of_runs(const Words& predicted, const Words& expected, size_t n) {
  const int64_t same = metrics::overlap(metrics::count_runs(predicted, n), metrics::count_runs(expected, n));
  return metrics::f_measure(same, metrics::runs(predicted.size(), n), metrics::runs(expected.size(), n));
}

// Returns the length of the longest common subsequence. Keeps only one row of the table.
int64_t longest_common(const Words& a, const Words& b) {
  std::vector<int64_t> row(b.size() + 1, 0);
  for (const std::string_view word : a) {
    int64_t diagonal = 0;
    for (size_t j = 1; j <= b.size(); j++) {
      const int64_t above = row[j];
      row[j] = word == b[j - 1] ? diagonal + 1 : std::max(above, row[j - 1]);
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace

Rouge rouge(std::string_view prediction, std::string_view target) {
  const std::string predicted_text = rouge_text(prediction), expected_text = rouge_text(target);
  const Words predicted = metrics::words(predicted_text), expected = metrics::words(expected_text);
  return {
      of_runs(predicted, expected, 1), of_runs(predicted, expected, 2),
      metrics::f_measure(longest_common(predicted, expected), std::ssize(predicted), std::ssize(expected))};
}

}  // namespace trainer
