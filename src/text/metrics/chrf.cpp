// As in sacrebleu 2.6, metrics/chrf.py, with its defaults.
#include "trainer/text/metrics.h"

#include "text/metrics/ngrams.h"
#include "text/metrics/words.h"
#include "text/unicode/utf8.h"

namespace trainer {
namespace {

std::string without_white_space(std::string_view text) {
  std::string out;
  for (const std::string_view word : metrics::words(text)) out += word;
  return out;
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> out;
  for (size_t at = 0; at < text.size(); at += out.back().size())
    out.push_back(text.substr(at, character_length(text, at)));
  return out;
}

}  // namespace

void Chrf::add(std::string_view prediction, std::string_view target) {
  const std::string predicted_text = without_white_space(prediction),
                    expected_text = without_white_space(target);
  const auto predicted = characters(predicted_text), expected = characters(expected_text);
  for (size_t n = 1; n <= kOrders; n++) {
    matches_[n - 1] += metrics::overlap(metrics::count_runs(predicted, n), metrics::count_runs(expected, n));
    // If a target is too short for n-grams of this order, those of the prediction do not count either.
    const int64_t in_target = metrics::runs(expected.size(), n);
    predicted_[n - 1] += in_target == 0 ? 0 : metrics::runs(predicted.size(), n);
    expected_[n - 1] += in_target;
  }
}

double Chrf::score() const {
  constexpr double kBetaSquared = 4;
  double precision = 0, recall = 0, orders = 0;
  for (size_t n = 0; n < kOrders; n++) {
    if (predicted_[n] == 0 || expected_[n] == 0) continue;
    precision += static_cast<double>(matches_[n]) / static_cast<double>(predicted_[n]);
    recall += static_cast<double>(matches_[n]) / static_cast<double>(expected_[n]);
    orders++;
  }
  if (precision + recall == 0) return 0;
  precision /= orders;
  recall /= orders;
  return 100 * (1 + kBetaSquared) * precision * recall / (kBetaSquared * precision + recall);
}

}  // namespace trainer
