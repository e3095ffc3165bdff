// Files of JSON lines -> samples.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/base/files.h"
#include "trainer/config/config.h"
#include "trainer/data/report.h"
#include "trainer/data/sample.h"
#include "trainer/text/tokenizer.h"

namespace trainer {

// One entry of data.train: the samples that follow those of the entries before it.
struct SampleSet {
  int64_t samples = 0;
  double weight = 1;                          // how often each comes in an epoch
  int64_t tokens = 0, supervised_tokens = 0;  // in all samples

  // How many of an epoch's samples are from this set: a weight that is not 0 never becomes nothing.
  int64_t in_epoch() const;
};

// A row that cannot be used, where data.bad_rows says skip.
struct SkippedRow {
  std::string file;
  int64_t line;
  std::string problem;
  std::string_view beginning;  // of the row
};

struct RowChoice;

// Safe to read from several threads. Files are mapped and only the places of rows are kept; the tokenizer
// must outlive the data set.
class Dataset {
 public:
  // Maps the files (docs/data.md) and reads and tokenises every row once (config.training.num_workers
  // threads), for the report, the index of samples, and so that bad rows are found before the first step.
  // The index of a file that is not small is kept in the cache folder, so that this is done once. Throws
  // DataError with file:line for a missing or empty file, for rows that cannot be used (the first five and
  // how many there are; with data.bad_rows: skip only where there are no others), and where no sample has
  // anything to learn; ConfigError for data.kind, input and target that contradict each other or the model.
  static Dataset open(const std::vector<DataSource>& sources, const Config& config,
                      const Tokenizer& tokenizer, bool encoder_decoder);
  // data.train, less what is held out of it; and data.eval, which may be what is held out.
  static Dataset open_train(const Config& config, const Tokenizer& tokenizer, bool encoder_decoder);
  static Dataset open_eval(const Config& config, const Tokenizer& tokenizer, bool encoder_decoder);

  // What was opened: "a.jsonl, b/*.jsonl".
  const std::string& name() const;
  int64_t size() const;
  bool encoder_decoder() const;
  // The entries of data.train: what SampleOrder is made of. An epoch may take more or less than size().
  const std::vector<SampleSet>& sets() const;

  // Tokenised and truncated. Throws DataError that names the file where it is no longer the one that was
  // opened; so does texts().
  Sample sample(int64_t index) const;
  const DataReport& report() const;
  // "file:line" of a sample, for messages.
  std::string origin(int64_t index) const;
  // The untokenised input and target of a sample (target empty for kind text).
  struct Texts {
    std::string input, target;
  };
  Texts texts(int64_t index) const;
  // What the model sees when it is to give that target.
  std::vector<int32_t> prompt(int64_t index) const;
  // The token that ends an answer of a conversation, where there are any.
  std::optional<int32_t> end_of_answer() const;

  // From the index, without reading the row.
  struct Lengths {
    int64_t input_tokens, target_tokens;
  };
  Lengths lengths(int64_t index) const;
  uint64_t content(int64_t index) const;  // a hash, the same for rows with the same content
  uint64_t input(int64_t index) const;    // a hash of the input's text
  bool begins_row(int64_t index) const;   // false: a further piece of the row that the sample before is of

  void for_each_skipped_row(const std::function<void(const SkippedRow&)>& visit) const;

 private:
  static Dataset open_part(const std::vector<DataSource>& sources, const RowChoice& choice,
                           const Config& config, const Tokenizer& tokenizer, bool encoder_decoder);
  struct State;
  explicit Dataset(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

}  // namespace trainer
