// Scores generated texts against their targets. The scores equal those of the Python packages that define
// them. All texts must be valid UTF-8.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainer {

// Returns whether the texts are equal, ignoring white space at both ends.
bool exact_match(std::string_view prediction, std::string_view target);

// Returns the harmonic mean of precision and recall of words, 0 to 1, after SQuAD's normalisation: lower
// case, without ASCII punctuation and the articles a, an, the. If one side has no words left, the result is 1
// if the other has none either, otherwise 0, as in SQuAD 2.0's script (1.1's gives 0).
double token_f1(std::string_view prediction, std::string_view target);

// F-measures, 0 to 1, as in `rouge_score` 0.1.2 without stemmer. Words are runs of the letters a to z and
// digits; other scripts are ignored.
struct Rouge {
  double rouge1 = 0, rouge2 = 0, rougeL = 0;
};
Rouge rouge(std::string_view prediction, std::string_view target);

// BLEU of a corpus, 0 to 100, as in `sacrebleu` with its defaults (4-grams, tokenizer 13a, smoothing exp).
class Bleu {
 public:
  void add(std::string_view prediction, std::string_view target);
  double score() const;

 private:
  static constexpr size_t kOrders = 4;
  std::array<int64_t, kOrders> correct_{}, total_{};
  int64_t predicted_words_ = 0, target_words_ = 0;
};

// chrF of a corpus, 0 to 100, as in `sacrebleu` with its defaults (characters up to 6-grams, no words, beta
// 2).
class Chrf {
 public:
  void add(std::string_view prediction, std::string_view target);
  double score() const;

 private:
  static constexpr size_t kOrders = 6;
  std::array<int64_t, kOrders> matches_{}, predicted_{}, expected_{};
};

// Scores for tasks with JSON output. JSON means RFC 8259: no NaN, no comments.
class JsonValidity {
 public:
  void add(std::string_view prediction, std::string_view target);
  // Returns whether there are targets and all of them are JSON objects or arrays. Otherwise the scores mean
  // nothing.
  bool applies() const { return count_ > 0 && count_ == json_targets_; }
  double valid() const;  // share of the predictions that are JSON of any kind, 0 to 1
  double match() const;  // share that equals the target, ignoring white space and the order of keys, 0 to 1

 private:
  int64_t count_ = 0, json_targets_ = 0, valid_ = 0, equal_ = 0;
};

// Several of these metrics at once.
class TextMetrics {
 public:
  // Names: exact_match, f1, rouge, bleu, chrf, json (evaluation.metrics). Throws ConfigError for any other.
  explicit TextMetrics(const std::vector<std::string>& metrics);

  // `given`: the target of the data, if `target` is what a tokenizer made of it. The metric json takes it
  // where only that is JSON.
  void add(std::string_view prediction, std::string_view target, std::string_view given = {});

  // Returns names and values in the order in which the metrics were requested: exact_match, f1, rouge1,
  // rouge2, rougeL (means), bleu, chrf, json_valid, json_match; those of json only when they apply. Returns
  // nothing before the first add().
  std::vector<std::pair<std::string, double>> values() const;

 private:
  std::vector<std::string> metrics_;
  int64_t count_ = 0, exact_ = 0;
  double f1_ = 0;
  Rouge rouge_;
  Bleu bleu_;
  Chrf chrf_;
  JsonValidity json_;
};

}  // namespace trainer
