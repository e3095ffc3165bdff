// As in sacrebleu 2.6, metrics/chrf.py, with its defaults.
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "trainer/text/metrics.h"

#include "base/utf8.h"
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

namespace trainer::metrics {
namespace {

// As in sacrebleu 2.6, metrics/bleu.py, with its defaults.
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
