// Opens data files and returns their samples.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/base/files.h"
#include "trainer/config/config.h"
#include "trainer/data/report.h"
#include "trainer/data/sample.h"
#include "trainer/text/tokenizer.h"

namespace trainer {

// One entry of data.train. Its samples follow the samples of the entries before it.
struct SampleSet {
  int64_t samples = 0;
  double weight = 1;                          // times that each sample occurs in an epoch, on average
  int64_t tokens = 0, supervised_tokens = 0;  // in all samples

  // Returns how many samples of an epoch come from this set: at least 1, however small the weight.
  int64_t in_epoch() const;
};

// A row that cannot be used and is skipped (data.bad_rows: skip).
struct SkippedRow {
  std::string file;
  int64_t line;
  std::string problem;
  std::string_view beginning;  // beginning of the row
};

struct RowChoice;
class StoredLogits;

// Safe to read from several threads. The files are mapped, and only the positions of the rows are kept in
// memory. The tokenizer must outlive the data set.
// Indices of two rows of a data set.
using RowPair = std::pair<int64_t, int64_t>;

class Dataset {
 public:
  // Maps the files (docs/data.md), then reads and tokenizes every row once with config.training.num_workers
  // threads. This gives the report and the index of samples, and finds bad rows before the first step. The
  // index of a large file is stored in the cache folder, so that later runs skip this work.
  //
  // Throws DataError with file:line for a missing or empty file, for rows that cannot be used (it names the
  // first five and the total; with data.bad_rows: skip, only when no usable row is left), and when no sample
  // has a supervised token. Throws ConfigError when data.kind, input and target contradict each other or the
  // model.
  static Dataset open(const std::vector<DataSource>& sources, const Config& config,
                      const Tokenizer& tokenizer, bool encoder_decoder);
  // open_train: data.train without the rows that are held out of it. open_eval: data.eval, which may be the
  // rows held out of data.train.
  static Dataset open_train(const Config& config, const Tokenizer& tokenizer, bool encoder_decoder);
  static Dataset open_eval(const Config& config, const Tokenizer& tokenizer, bool encoder_decoder);

  // Returns the names of the opened sources: "a.jsonl, b/*.jsonl".
  const std::string& name() const;
  int64_t size() const;
  bool encoder_decoder() const;
  // The entries of data.train, from which SampleOrder is built. An epoch may have more or fewer samples than
  // size().
  const std::vector<SampleSet>& sets() const;

  // Returns the sample, tokenized and truncated. sample() and texts() throw a DataError that names the file
  // when the file has changed since it was opened.
  // `side`: of a row whose answers are compared, 0 is the chosen answer and 1 the rejected one.
  // `epoch`: which noise a sample of span_corruption has.
  Sample sample(int64_t index, int64_t side = 0, int64_t epoch = 0) const;
  // Returns the samples of all sides, with what set_references() has set.
  std::vector<Sample> samples(int64_t index, int64_t epoch = 0) const;
  // Returns the samples that each row gives: 2 for preferences. size() and indices count rows then.
  int64_t sides() const;
  const DataReport& report() const;
  // "file:line" of a sample, for messages.
  std::string origin(int64_t index) const;
  // The untokenized input and target of a sample (target empty for kind text).
  struct Texts {
    std::string input, target;
  };
  Texts texts(int64_t index) const;
  // Returns the tokens that the model gets before it generates the target.
  std::vector<int32_t> prompt(int64_t index) const;
  // Returns the token that ends an answer in chat data; none for other kinds.
  std::optional<int32_t> end_of_answer() const;
  // Returns the classes of rows with labels, and what they weigh.
  RowLabels labels() const;
  // Returns whether a chat template writes the samples.
  bool has_chat_template() const;

  // The lengths of a sample, from the index, without reading the row.
  struct Lengths {
    int64_t input_tokens, target_tokens;
  };
  Lengths lengths(int64_t index, int64_t side = 0) const;
  uint64_t content(int64_t index) const;  // a hash, the same for rows with the same content
  uint64_t input(int64_t index) const;    // a hash of the input's text
  bool begins_row(int64_t index) const;   // false: a later piece of the same row as the previous sample

  // Returns checksums of all samples' places, lengths and contents; of the ids that are kept of rows that are
  // split ("": none are kept); and of what makes samples of rows: tokenizer, template, columns, lengths.
  struct Checksums {
    std::string samples, pieces, form;
  };
  Checksums checksums() const;

  // Sets Sample::reference of all samples: sides() values for each row.
  void set_references(std::vector<double> references);
  // Sets those of a row's prompt with the answer of another row, for kto.
  void set_references_of_others(std::map<RowPair, double> references);
  // nullopt if it is not set.
  std::optional<double> reference_of_other(const RowPair& pair) const;
  // Returns those of the rows of a step, each with the answer of the row before it, the first one with that
  // of the last; nothing if one is not set.
  std::vector<double> references_of_others(const std::vector<int64_t>& rows) const;

  // Sets what samples() gives as Sample::teacher. From then on it throws a DataError that names the row if
  // nothing is stored of it.
  void set_logits(std::shared_ptr<const StoredLogits> logits);

  void for_each_skipped_row(const std::function<void(const SkippedRow&)>& visit) const;

 private:
  static Dataset open_part(const std::vector<DataSource>& sources, const RowChoice& choice,
                           const Config& config, const Tokenizer& tokenizer, bool encoder_decoder);
  TeacherTokens teacher_of(const Sample& sample, int64_t index) const;
  struct State;
  explicit Dataset(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
  std::shared_ptr<const std::vector<double>> references_;  // nullptr: none
  std::shared_ptr<const std::map<RowPair, double>> references_of_others_;
  std::shared_ptr<const StoredLogits> logits_;
};

}  // namespace trainer
