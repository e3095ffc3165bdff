// Encodes rows with an input and a target, or running text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/fields.h"
#include "data/row_encoder.h"
#include "data/span_noise.h"

namespace trainer {

class TextEncoder : public RowEncoder {
 public:
  TextEncoder(const Fields& fields, const DataConfig& config, const Tokenizer& tokenizer);

  ReadRow read(const RowParser& row) const override;
  std::vector<EncodedSample> encode(const ReadRow& row) const override;
  std::vector<std::string> learned(const ReadRow& row) const override {
    return {target_ ? row.texts.target : row.texts.input};
  }
  Dataset::Texts texts(const ReadRow& row) const override { return row.texts; }
  std::vector<int32_t> prompt(const ReadRow& row) const override;
  std::string content(const ReadRow& row) const override { return row.fields; }
  std::string question(const ReadRow& row) const override { return row.texts.input; }
  std::string settings() const override;
  DataKind kind() const override { return fields_.kind; }
  std::string input_field() const override { return fields_.input; }
  std::string target_field() const override { return fields_.target; }

 private:
  void refuse_lists(const RowParser& row) const;
  Dataset::Texts texts_of(const RowParser& row) const;

  Fields fields_;
  DataConfig config_;
  const Tokenizer& tokenizer_;
  TextTemplate input_;
  std::optional<TextTemplate> target_;    // none for kind text
  std::vector<std::string> field_names_;  // in both, sorted
};

// Encodes running text for span corruption (data.kind: span_corruption). A text is divided into pieces that
// are as long as the configured lengths allow, so nothing is lost but a last piece of one token.
class SpanEncoder final : public TextEncoder {
 public:
  SpanEncoder(const Fields& fields, const DataConfig& config, const Tokenizer& tokenizer);

  std::vector<EncodedSample> encode(const ReadRow& row) const override;
  Sample from_kept(std::vector<int32_t> ids, uint64_t noise) const override;
  Dataset::Texts texts(const ReadRow& row) const override { return {row.texts.input, row.texts.input}; }
  std::string settings() const override;
  DataKind kind() const override { return DataKind::span_corruption; }
  DataKind layout() const override { return DataKind::seq2seq; }
  std::string target_field() const override { return "what is taken out"; }

 private:
  DataConfig config_;
  const Tokenizer& tokenizer_;
  SpanNoise noise_;
};

}  // namespace trainer
