// What an open data set holds: its files with their indexes, and what turns their rows into samples.
#pragma once

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/data/dataset.h"

#include "data/build_index.h"
#include "data/data_part.h"
#include "data/label_encoder.h"
#include "data/row_encoder.h"
#include "data/survey.h"

namespace trainer {

// The file of a stored index, and the inputs that it must have been built from.
struct KeptIndex {
  std::filesystem::path path;
  std::string made_of;
};

struct Dataset::State {
  DataConfig config;
  ObjectiveConfig objective;
  std::string model;  // the directory with the chat template
  const Tokenizer* tokenizer;
  bool encoder_decoder;
  int64_t num_workers;
  uint64_t seed;
  std::string name;
  std::unique_ptr<RowEncoder> encoder;
  std::vector<Part> parts;
  std::vector<SampleSet> sets;
  int64_t size = 0;   // in samples; of rows whose answers are compared, both are one after the other
  int64_t sides = 1;  // samples of each row
  RowLabels labels;   // of kind classification
  std::optional<LabelCounts> label_counts;
  DataReport report;
  mutable std::optional<Survey> survey;  // without rows; a stored index needs none

  const Part& part_of(int64_t index) const {
    const auto next = std::ranges::upper_bound(parts, index, {}, &Part::first_sample);
    return *std::prev(next);
  }
  const IndexedSample& entry(int64_t index) const {
    const Part& part = part_of(index);
    return part.index.at(index - part.first_sample);
  }
  std::string origin(int64_t index) const { return part_of(index).file.place(entry(index).offset); }

  // Returns the result of `make` for a row that was valid when the data were opened.
  template <class Make>
  auto read(int64_t index, const Make& make) const {
    thread_local RowParser parser;  // it keeps its buffers
    const Part& part = part_of(index);
    const std::shared_ptr<const MappedFile> held = part.file.map();
    part.file.check_unchanged();
    const IndexedSample& entry = part.index.at(index - part.first_sample);
    try {
      part.file.parse(parser, {entry.offset, entry.length});
      return make(parser, entry);
    } catch (const DataError& e) {
      throw DataError(concat(origin(index), ": the file has changed since it was opened: ", e.what()));
    }
  }

  void open(const std::vector<DataSource>& sources, const RowChoice& choice);
  void make_encoder(const std::vector<RowFile>& files);
  // Of kind classification: finds the classes, and what each weighs.
  void settle_labels(const std::vector<RowFile>& files, const RowChoice& choice);
  // Throws DataError if all rows have the same label.
  void check_labels() const;
  void take_a_look(const std::vector<RowFile>& files, const RowChoice& choice) const;
  RowIndex index_of(const RowFile& file, const RowChoice& choice) const;
  const Survey& empty_survey() const;
  std::optional<KeptIndex> kept_index(const RowFile& file, const RowChoice& choice) const;
  std::string fingerprint(const RowFile& file, const RowChoice& choice) const;
  std::string form() const;  // what makes samples of rows
  SampleSet set_of(int64_t first_sample, double weight) const;
  DataReport described(DataReport counts) const;
  void refuse_bad_rows() const;
  void check_samples(const RowChoice& choice) const;
};

}  // namespace trainer
