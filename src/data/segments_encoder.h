// Rows that are a list of pieces of text, each with its weight in the loss: {"segments": [{"text": "2+2=",
// "label": false}, {"text": "4", "label": true}]}, as axolotl has them, or with "weight": 0.3 instead of a
// label.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/row_encoder.h"

namespace trainer {

// For decoders. The pieces are tokenized one by one and joined; nothing is added, so begin and end tokens are
// those that the texts name.
class SegmentsEncoder final : public RowEncoder {
 public:
  SegmentsEncoder(const DataConfig& config, const Tokenizer& tokenizer)
      : config_(config), tokenizer_(tokenizer) {}

  ReadRow read(const RowParser& row) const override;
  std::vector<EncodedSample> encode(const ReadRow& row) const override;
  // Before the first piece that is learned, and from there on.
  Dataset::Texts texts(const ReadRow& row) const override;
  std::vector<std::string> learned(const ReadRow& row) const override;
  std::vector<int32_t> prompt(const ReadRow& row) const override;
  std::string content(const ReadRow& row) const override { return row.fields; }
  std::string question(const ReadRow& row) const override { return texts(row).input; }
  std::string settings() const override;
  DataKind kind() const override { return DataKind::completion; }
  std::string input_field() const override { return "segments"; }
  std::string target_field() const override { return ""; }

 private:
  DataConfig config_;
  const Tokenizer& tokenizer_;
};

// Returns an encoder if the rows have "segments" and the configuration names no other fields; otherwise
// nullptr. Throws ConfigError for an encoder-decoder, and where samples are to be split.
std::unique_ptr<RowEncoder> make_segments_encoder(const DataConfig& config, const RowParser& first_row,
                                                  const Tokenizer& tokenizer, bool encoder_decoder);

}  // namespace trainer
