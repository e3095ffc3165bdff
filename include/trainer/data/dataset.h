// Files of JSON lines -> samples.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "trainer/base/files.h"
#include "trainer/config/config.h"
#include "trainer/data/sample.h"
#include "trainer/text/tokenizer.h"

namespace trainer {

// What was seen while opening the data; shown before the first step.
struct DataReport {
  // After truncation. Input and target are source and target, or prompt and completion; plain text is all
  // input.
  int64_t samples = 0, input_tokens = 0, target_tokens = 0;
  int64_t supervised_tokens = 0;
  int64_t longest_input = 0, longest_target = 0;
  int64_t longest_sample = 0;                           // input and target together
  int64_t truncated_inputs = 0, truncated_targets = 0;  // samples
  int64_t unknown_tokens_in_inputs = 0, unknown_tokens_in_targets = 0;
  int64_t samples_with_unknown_inputs = 0, samples_with_unknown_targets = 0;
  std::string unknown_characters_in_inputs, unknown_characters_in_targets;  // "{ } ~", the first ones
  int64_t without_supervision = 0;                                          // samples with nothing to learn
  DataKind kind = DataKind::automatic;  // what `automatic` turned out to be
  std::string input_field, target_field;
  std::vector<std::string> lines() const;  // for the start block, warnings included
};

// Safe to read from several threads. Files are mapped and only the places of rows are kept; the tokenizer
// must outlive the data set.
class Dataset {
 public:
  // Maps the files (one JSON object a line, or one array of objects), parses and tokenises every row once
  // (config.training.num_workers threads) for the report and so that bad rows are found before the first
  // step. Throws DataError with file:line for a missing or empty file, malformed JSON, a row without its
  // field or with a wrong type (the first five rows and how many there are), and where no sample has anything
  // to learn; ConfigError for data.kind, input and target that contradict each other or the model.
  static Dataset open(const std::vector<DataSource>& sources, const Config& config,
                      const Tokenizer& tokenizer, bool encoder_decoder);
  // data.train, less what is held out of it; and data.eval, which may be what is held out.
  static Dataset open_train(const Config& config, const Tokenizer& tokenizer, bool encoder_decoder);
  static Dataset open_eval(const Config& config, const Tokenizer& tokenizer, bool encoder_decoder);

  // What was opened: "a.jsonl, b/*.jsonl".
  const std::string& name() const;
  int64_t size() const;
  bool encoder_decoder() const;
  Sample sample(int64_t index) const;  // tokenised and truncated
  const DataReport& report() const;
  // "file:line" of a sample, for messages.
  std::string origin(int64_t index) const;
  // The untokenised input and target of a sample (target empty for kind text).
  struct Texts {
    std::string input, target;
  };
  Texts texts(int64_t index) const;

 private:
  struct State;
  explicit Dataset(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

}  // namespace trainer
