// As in SQuAD's evaluation script: normalize_answer(), compute_f1().
#include "trainer/text/metrics.h"

#include "text/jinja/text_tests.h"
#include "text/metrics/ngrams.h"
#include "text/metrics/words.h"
#include "text/unicode/letter_case.h"
#include "text/unicode/unicode.h"
#include "text/unicode/utf8.h"

namespace trainer {
namespace {

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
  size_t begin = 0;  // of the current word
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
