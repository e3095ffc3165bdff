// Turns rows of texts that mean the same into samples: a text, one that belongs to it, and maybe one that
// does not.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/fields.h"
#include "data/row_encoder.h"

namespace trainer {

class PairsEncoder : public RowEncoder {
 public:
  // `fields`: names or templates of the texts of each side.
  PairsEncoder(const std::vector<std::string>& fields, const DataConfig& config, const Tokenizer& tokenizer);

  ReadRow read(const RowParser& row) const override;
  std::vector<EncodedSample> encode(const ReadRow& row) const override;
  Dataset::Texts texts(const ReadRow& row) const override { return row.texts; }
  std::vector<std::string> learned(const ReadRow&) const override { return {}; }
  std::vector<int32_t> prompt(const ReadRow& row) const override {
    return tokenizer_.encode(row.texts.input, true);
  }
  std::string content(const ReadRow& row) const override { return row.fields; }
  std::string question(const ReadRow& row) const override { return row.texts.input; }
  std::string settings() const override;
  DataKind kind() const override { return DataKind::pairs; }
  DataKind layout() const override { return DataKind::completion; }
  int64_t sides() const override { return static_cast<int64_t>(sides_.size()); }
  std::string input_field() const override { return fields_.front(); }
  std::string target_field() const override;

 private:
  std::vector<std::string> fields_;
  std::vector<TextTemplate> sides_;
  DataConfig config_;
  const Tokenizer& tokenizer_;
};

// Returns the encoder for objective.name: embedding. Throws DataError if the names of the fields say nothing.
std::unique_ptr<RowEncoder> make_pairs_encoder(const DataConfig& config, const RowParser& first_row,
                                               const Tokenizer& tokenizer);

}  // namespace trainer
