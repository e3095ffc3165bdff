// As in rouge_score 0.1.2: tokenize.py without stemmer, rouge_scorer.py.
#include <vector>

#include "trainer/text/metrics.h"

#include "base/utf8.h"
#include "text/jinja/text.h"
#include "text/metrics/ngrams.h"
#include "text/unicode/unicode.h"

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

// As in SQuAD's evaluation script: normalize_answer(), compute_f1().
// \w in Python's regular expressions.
bool is_word(std::string_view character) {
  return character == "_" || jinja::is_alnum(jinja::Text(std::string(character)));
}

std::string without_ascii_punctuation(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80 || !is_punctuation(byte)) out += c;
  }
  return out;
}

// Replaces each article by a space: \b(a|an|the)\b.
std::string without_articles(std::string_view text) {
  std::string out;
  size_t begin = 0;  // where the current word begins
  const auto end_word = [&](size_t end) {
    const std::string_view word = text.substr(begin, end - begin);
    out.append(word == "a" || word == "an" || word == "the" ? " " : word);
  };
  for (size_t at = 0; at < text.size();) {
    const size_t length = character_length(text, at);
    if (!is_word(text.substr(at, length))) {
      end_word(at);
      out.append(text.substr(at, length));
      begin = at + length;
    }
    at += length;
  }
  end_word(text.size());
  return out;
}

std::string squad_text(std::string_view text) {
  return without_articles(without_ascii_punctuation(lower(text)));
}

}  // namespace

Rouge rouge(std::string_view prediction, std::string_view target) {
  const std::string predicted_text = rouge_text(prediction), expected_text = rouge_text(target);
  const Words predicted = metrics::words(predicted_text), expected = metrics::words(expected_text);
  return {
      of_runs(predicted, expected, 1), of_runs(predicted, expected, 2),
      metrics::f_measure(longest_common(predicted, expected), std::ssize(predicted), std::ssize(expected))};
}

bool exact_match(std::string_view prediction, std::string_view target) {
  return metrics::strip(prediction) == metrics::strip(target);
}

double token_f1(std::string_view prediction, std::string_view target) {
  const std::string predicted_text = squad_text(prediction), expected_text = squad_text(target);
  const auto predicted = metrics::words(predicted_text), expected = metrics::words(expected_text);
  if (predicted.empty() || expected.empty()) return predicted.empty() && expected.empty() ? 1 : 0;
  const int64_t same = metrics::overlap(metrics::count_runs(predicted, 1), metrics::count_runs(expected, 1));
  return metrics::f_measure(same, std::ssize(predicted), std::ssize(expected));
}

}  // namespace trainer
