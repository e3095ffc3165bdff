// As in sacrebleu 2.6, metrics/bleu.py, with its defaults.
#include <cmath>

#include "trainer/text/metrics.h"

#include "text/metrics/ngrams.h"
#include "text/metrics/tokenize_13a.h"
#include "text/metrics/words.h"

namespace trainer {

void Bleu::add(std::string_view prediction, std::string_view target) {
  const std::string predicted_text = metrics::tokenize_13a(metrics::strip_end(prediction)),
                    expected_text = metrics::tokenize_13a(metrics::strip_end(target));
  const auto predicted = metrics::words(predicted_text), expected = metrics::words(expected_text);
  predicted_words_ += std::ssize(predicted);
  target_words_ += std::ssize(expected);
  for (size_t n = 1; n <= kOrders; n++) {
    correct_[n - 1] += metrics::overlap(metrics::count_runs(predicted, n), metrics::count_runs(expected, n));
    total_[n - 1] += metrics::runs(predicted.size(), n);
  }
}

double Bleu::score() const {
  if (correct_ == std::array<int64_t, kOrders>{}) return 0;
  // The first precision of 0 counts as half of the smallest possible one, the next as a quarter, and so on.
  double logarithms = 0, smoothing = 1;
  for (size_t n = 0; n < kOrders; n++) {
    if (total_[n] == 0) return 0;  // no prediction is that long
    const double total = static_cast<double>(total_[n]);
    if (correct_[n] == 0) smoothing *= 2;
    logarithms += std::log(correct_[n] == 0 ? 100.0 / (smoothing * total)
                                            : 100.0 * static_cast<double>(correct_[n]) / total);
  }
  const double lengths = static_cast<double>(target_words_) / static_cast<double>(predicted_words_);
  const double brevity = lengths > 1 ? std::exp(1 - lengths) : 1;
  return brevity * std::exp(logarithms / static_cast<double>(kOrders));
}

}  // namespace trainer
