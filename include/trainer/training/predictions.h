// Evaluation by generation: answers to the inputs of a data set, next to their targets, and their scores.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/Device.h>

#include "trainer/config/config.h"
#include "trainer/data/dataset.h"
#include "trainer/generation/generation_config.h"
#include "trainer/memory/batch_budget.h"
#include "trainer/models/model.h"
#include "trainer/parallel/ranks.h"
#include "trainer/text/metrics.h"
#include "trainer/text/tokenizer.h"

namespace trainer {

struct Prediction {
  std::string origin;  // file:line
  std::string input;
  std::string target, prediction;  // both as the tokenizer writes them (evaluation.skip_special_tokens)
  std::string given = {};          // the target as the data has it
};

struct Predictions {
  std::vector<Prediction> rows;  // in the order of the data
  TextMetrics metrics{{}};       // of the rows
  Scores scores;                 // its values
  double mean_tokens = 0;        // per answer, including the end token
  double seconds = 0;

  // Returns the first `count` answers with their targets, for people to read: three lines each, shortened to
  // the width of a terminal.
  std::vector<std::string> lines(int64_t count) const;
  // Writes rows of JSON with origin, input, target and prediction. The file is written completely or not at
  // all. Throws FormatError.
  void write(const std::filesystem::path& file) const;
};

// Reads a file of Predictions::write(). Throws DataError "FILE:LINE: ..." for rows without its fields.
std::vector<Prediction> predictions_in(const std::filesystem::path& file);

// Answers the same samples at each call. Data and tokenizer must outlive it.
class Predictor {
 public:
  // config.evaluation has the settings; `generation`, the model's generation_config, has those it leaves
  // open. `max_samples` (0: all) applies if the configuration does not set it. Throws ConfigError for data
  // without targets (kind text), DataError for an input without tokens.
  Predictor(const Dataset& data, const Tokenizer& tokenizer, const Config& config,
            GenerationConfig generation, int64_t max_samples);

  // Generates with the current weights, without randomness: for as many inputs at once as configured, or
  // fewer when out of memory. The longest come first, so that running out of memory shows at once. `between`,
  // called after each answer, may throw to end the generation. Throws OutOfMemoryError when not even one
  // input fits. Several ranks divide the inputs, and all get all answers.
  Predictions predict(const Model& model, c10::Device device, const std::function<void()>& between = {},
                      const Ranks& ranks = Ranks::none());

  BatchBudget& budget() { return budget_; }  // to be saved with a run

 private:
  // An input: its place among the answers, and its tokens.
  struct Prompt {
    size_t place;
    std::vector<int32_t> tokens;
  };

  // Returns the prompts that a rank answers, longest first.
  std::vector<Prompt> prompts_of(const Ranks& ranks) const;
  std::string answer(const Model& model, c10::Device device, const std::function<void()>& between,
                     const Ranks& ranks);

  const Dataset& data_;
  const Tokenizer& tokenizer_;
  std::vector<std::string> metrics_;
  bool skip_special_tokens_;
  GenerationConfig generation_;
  RecoveryConfig recovery_;
  std::vector<int64_t> samples_;  // indices in the data
  int64_t batch_size_;
  std::vector<Prompt> prompts_;  // longest first
  BatchBudget budget_;           // a size that was too large is not tried again at the next evaluation
};

}  // namespace trainer
