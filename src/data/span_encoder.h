// Encodes running text for span corruption (data.kind: span_corruption). A text is divided into pieces that
// are as long as the configured lengths allow, so nothing is lost but a last piece of one token.
#pragma once

#include <string>
#include <vector>

#include "data/span_noise.h"
#include "data/text_encoder.h"

namespace trainer {

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
