// Scores generated texts against their targets. The scores equal those of the Python packages that define
// them. All texts must be valid UTF-8.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
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

// A score and its value.
using Scores = std::vector<std::pair<std::string, double>>;

// The range that holds 95 % of the values of a score where the answers are drawn again, with repeats.
struct ScoreRange {
  std::string name;
  double low = 0, high = 0;
};

// The share of the answers whose field of this name is right.
struct FieldScore {
  std::string name;  // "address.city"; "[].name" in a list of objects
  int64_t right = 0, count = 0;
};

class Metric;

// Several metrics of a set of answers:
// - exact_match, f1, rouge (rouge1, rouge2, rougeL): means of the functions above.
// - bleu, chrf, ter: of the whole set, as in `sacrebleu` 2.6 with its defaults; 0 to 100, for ter also above.
//   BLEU has 4-grams, tokenizer 13a, smoothing exp; chrF characters up to 6-grams, no words, beta 2; TER
//   lower case.
// - json: json_valid, the share of answers that are JSON of any kind (RFC 8259: no NaN, no comments);
//   json_match, the share that equals the target, whatever the white space and the order of keys; and
//   json_fields, the share of the targets' fields that are right. Only where all targets are JSON objects or
//   arrays, json_fields only where they have fields.
class TextMetrics {
 public:
  // Names as above (evaluation.metrics). Throws ConfigError for any other.
  explicit TextMetrics(const std::vector<std::string>& metrics);

  // `given`: the target of the data, if `target` is what a tokenizer made of it. The metric json takes it
  // where only that is JSON.
  void add(std::string_view prediction, std::string_view target, std::string_view given = {});

  // Returns the scores in the order in which the metrics were requested; none before the first add().
  Scores values() const;
  // Returns the fields of JSON targets in alphabetical order; none unless `json` was requested and applies.
  std::vector<FieldScore> fields() const;
  // Returns the range of each score: percentiles of 1000 sets that are drawn from the answers (Efron, 1979;
  // Koehn, 2004). The same answers give the same ranges.
  std::vector<ScoreRange> ranges() const;

 private:
  friend std::vector<struct ScoreDifference> compare(const TextMetrics& a, const TextMetrics& b);
  Scores scores_of(std::span<const double> sums, double count) const;
  std::span<const double> row(size_t answer) const;
  size_t answers() const { return width_ == 0 ? 0 : kept_.size() / width_; }

  std::vector<std::shared_ptr<const Metric>> metrics_;
  size_t width_ = 0;          // numbers that are kept of an answer, of all metrics
  std::vector<double> kept_;  // [answers, width_]: each score follows from the sums over answers
  std::map<std::string, FieldScore> fields_;
};

// How much higher a score of the answers `a` is than that of `b` to the same inputs.
struct ScoreDifference {
  std::string name;
  double a = 0, b = 0;
  double low = 0, high = 0;  // 95 % of a - b where the inputs are drawn again, with repeats
  // How likely a difference of this size is if both are equally good: paired bootstrap (Koehn, "Statistical
  // significance tests for machine translation evaluation", 2004), centred as in Riezler and Maxwell, 2005.
  double p = 1;
};

// Returns the differences of the scores that both have. Both must have the same metrics, and the i-th answers
// must be to the same input.
std::vector<ScoreDifference> compare(const TextMetrics& a, const TextMetrics& b);

}  // namespace trainer
