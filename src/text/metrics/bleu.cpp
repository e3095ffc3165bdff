// As in sacrebleu 2.6, metrics/bleu.py, with its defaults.
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "text/metrics/metric.h"
#include "text/metrics/ngrams.h"

namespace trainer::metrics {
namespace {

// The tokenizer of mteval-v13a, the standard tokenizer for BLEU.

// All character classes are ASCII, so single bytes can be tested. The bytes of longer characters are "not a
// digit" and stay together.
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_point(char c) { return c == '.' || c == ','; }
// ASCII punctuation and the space, without ' , - and the period.
bool is_symbol(char c) {
  return (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') || c == '/' || (c >= ':' && c <= '@') ||
         (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

std::string replaced(std::string text, std::string_view old, std::string_view by) {
  for (size_t at = 0; (at = text.find(old, at)) != std::string::npos; at += by.size())
    text.replace(at, old.size(), by);
  return text;
}

// Like re.sub() with a pattern that matches two characters for which `holds` is true. The replacement is the
// two characters with the given texts before, between and after them.
template <class Holds>
std::string spaced(const std::string& text, const Holds& holds, std::string_view before,
                   std::string_view between, std::string_view behind) {
  std::string out;
  for (size_t i = 0; i < text.size(); i++) {
    if (i + 1 < text.size() && holds(text[i], text[i + 1])) {
      ((out.append(before) += text[i]).append(between) += text[i + 1]).append(behind);
      i++;
    } else {
      out += text[i];
    }
  }
  return out;
}

// Returns the tokens of a line with one space between them (as in sacrebleu, tokenizers/tokenizer_13a.py,
// tokenizer_re.py).
std::string tokenize_13a(std::string_view line) {
  using Replacement = std::pair<std::string_view, std::string_view>;
  static constexpr std::array<Replacement, 7> replacements{{{"<skipped>", ""},
                                                            {"-\n", ""},
                                                            {"\n", " "},
                                                            {"&quot;", "\""},
                                                            {"&amp;", "&"},
                                                            {"&lt;", "<"},
                                                            {"&gt;", ">"}}};
  std::string text(line);
  for (const auto& [old, by] : replacements) text = replaced(std::move(text), old, by);
  std::string apart = " ";
  for (const char c : text) is_symbol(c) ? (apart.append(" ") += c).append(" ") : apart += c;
  apart += ' ';
  text = spaced(
      apart, [](char a, char b) { return !is_digit(a) && is_point(b); }, "", " ", " ");
  text = spaced(
      text, [](char a, char b) { return is_point(a) && !is_digit(b); }, " ", " ", "");
  text = spaced(
      text, [](char a, char b) { return is_digit(a) && b == '-'; }, "", " ", " ");
  return single_spaced(text);
}

}  // namespace

}  // namespace trainer::metrics

namespace trainer {
namespace {

constexpr size_t kOrders = 4;

class Bleu final : public Metric {
 public:
  size_t size() const override { return 2 + 2 * kOrders; }
  void measure(std::string_view prediction, std::string_view target, std::span<double> out) const override;
  void score(std::span<const double> sums, double count, Scores& out) const override;
};

// Words of the prediction and of the target; then of each order n-grams that match, and of the prediction.
void Bleu::measure(std::string_view prediction, std::string_view target, std::span<double> out) const {
  const std::string predicted_text = metrics::tokenize_13a(metrics::strip_end(prediction)),
                    expected_text = metrics::tokenize_13a(metrics::strip_end(target));
  const auto predicted = metrics::words(predicted_text), expected = metrics::words(expected_text);
  out[0] = static_cast<double>(predicted.size());
  out[1] = static_cast<double>(expected.size());
  for (size_t n = 1; n <= kOrders; n++) {
    out[2 * n] = static_cast<double>(
        metrics::overlap(metrics::count_runs(predicted, n), metrics::count_runs(expected, n)));
    out[2 * n + 1] = static_cast<double>(metrics::runs(predicted.size(), n));
  }
}

double bleu_of(std::span<const double> sums) {
  double logarithms = 0, smoothing = 1, all_correct = 0;
  for (size_t n = 1; n <= kOrders; n++) all_correct += sums[2 * n];
  if (all_correct == 0) return 0;
  // The first precision of 0 counts as half of the smallest possible one, the next as a quarter, and so on.
  for (size_t n = 1; n <= kOrders; n++) {
    const double correct = sums[2 * n], total = sums[2 * n + 1];
    if (total == 0) return 0;  // no prediction is that long
    if (correct == 0) smoothing *= 2;
    logarithms += std::log(correct == 0 ? 100.0 / (smoothing * total) : 100.0 * correct / total);
  }
  const double lengths = sums[1] / sums[0];
  const double brevity = lengths > 1 ? std::exp(1 - lengths) : 1;
  return brevity * std::exp(logarithms / static_cast<double>(kOrders));
}

void Bleu::score(std::span<const double> sums, double, Scores& out) const {
  out.emplace_back("bleu", bleu_of(sums));
}

}  // namespace

std::unique_ptr<Metric> bleu_metric() { return std::make_unique<Bleu>(); }

}  // namespace trainer
