// As in sacrebleu 2.6, metrics/chrf.py, with its defaults.
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "text/metrics/metric.h"
#include "text/metrics/ngrams.h"

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

class Chrf final : public Metric {
 public:
  size_t size() const override { return 3 * kOrders; }
  void measure(std::string_view prediction, std::string_view target, std::span<double> out) const override;
  void score(std::span<const double> sums, double count, Scores& out) const override;

 private:
  static constexpr size_t kOrders = 6;
};

// Of each order: n-grams that match, of the prediction, of the target.
void Chrf::measure(std::string_view prediction, std::string_view target, std::span<double> out) const {
  const std::string predicted_text = without_white_space(prediction),
                    expected_text = without_white_space(target);
  const auto predicted = characters(predicted_text), expected = characters(expected_text);
  for (size_t n = 1; n <= kOrders; n++) {
    const auto place = out.subspan(3 * (n - 1), 3);
    // If a target is too short for n-grams of this order, those of the prediction do not count either.
    const int64_t in_target = metrics::runs(expected.size(), n);
    place[0] = static_cast<double>(
        metrics::overlap(metrics::count_runs(predicted, n), metrics::count_runs(expected, n)));
    place[1] = in_target == 0 ? 0 : static_cast<double>(metrics::runs(predicted.size(), n));
    place[2] = static_cast<double>(in_target);
  }
}

void Chrf::score(std::span<const double> sums, double, Scores& out) const {
  constexpr double kBetaSquared = 4;
  double precision = 0, recall = 0, orders = 0;
  for (size_t n = 0; n < kOrders; n++) {
    const auto place = sums.subspan(3 * n, 3);
    if (place[1] == 0 || place[2] == 0) continue;
    precision += place[0] / place[1];
    recall += place[0] / place[2];
    orders++;
  }
  if (precision + recall == 0) return out.emplace_back("chrf", 0), void();
  precision /= orders;
  recall /= orders;
  out.emplace_back("chrf",
                   100 * (1 + kBetaSquared) * precision * recall / (kBetaSquared * precision + recall));
}

}  // namespace

std::unique_ptr<Metric> chrf_metric() { return std::make_unique<Chrf>(); }

}  // namespace trainer
