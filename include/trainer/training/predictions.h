// Evaluation by generation: answers to the inputs of a data set, beside their targets, and what they score.
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
#include "trainer/text/tokenizer.h"

namespace trainer {

struct Prediction {
  std::string origin;  // file:line
  std::string input, target, prediction;
};

struct Predictions {
  std::vector<Prediction> rows;                        // in the order of the data
  std::vector<std::pair<std::string, double>> scores;  // as TextMetrics has them
  double mean_tokens = 0;                              // of an answer, its end token included
  double seconds = 0;

  // The first ones beside their targets, for a person: three lines each, cut to what a terminal holds.
  std::vector<std::string> lines(int64_t count) const;
  // Rows of JSON with origin, input, target and prediction. Throws FormatError; the file is whole or not
  // there.
  void write(const std::filesystem::path& file) const;
};

// Answers the same samples each time it is asked. Data and tokenizer must outlive it.
class Predictor {
 public:
  // config.evaluation says how; `generation` the rest: the model's generation_config. max_samples, 0 for all,
  // is for where the configuration has none. Throws ConfigError for data without targets (kind text),
  // DataError for an input without tokens.
  Predictor(const Dataset& data, const Tokenizer& tokenizer, const Config& config,
            GenerationConfig generation, int64_t max_samples);

  // By the model as it is now; nothing random. Inputs of similar length go through it together, as many at
  // once as configured, fewer where memory does not suffice; the longest come first, so that this shows at
  // once. `progress` may be empty; it may throw to end it. Throws OutOfMemoryError when there is no memory
  // for one.
  Predictions predict(const Model& model, c10::Device device,
                      const std::function<void(int64_t done, int64_t total)>& progress = {});

  BatchBudget& budget() { return budget_; }  // to be saved with a run

 private:
  // Where an input stands in the answers, and its tokens.
  struct Prompt {
    size_t place;
    std::vector<int32_t> tokens;
  };

  const Dataset& data_;
  const Tokenizer& tokenizer_;
  std::vector<std::string> metrics_;
  GenerationConfig generation_;
  RecoveryConfig recovery_;
  std::vector<int64_t> samples_;  // their indices in the data
  int64_t batch_size_;
  std::vector<Prompt> prompts_;  // the longest first
  BatchBudget budget_;           // a size that was too large once is not tried again at the next evaluation
};

}  // namespace trainer
