#include "data/segments_encoder.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/text.h"
#include "data/fields.h"
#include "text/chat/row_json.h"

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;

float weight_of_segment(const Json& segment, const std::string& where) {
  const Json *label = value_of(segment, "label"), *weight = value_of(segment, "weight");
  if (label != nullptr && weight != nullptr)
    throw DataError(concat(where, " has both \"label\" and \"weight\"; one of them says what it counts"));
  if (label != nullptr && label->is_boolean()) return label->get<bool>() ? 1.0F : 0.0F;
  if (weight != nullptr && weight->is_number() && *weight >= 0 && *weight <= 1e6) return weight->get<float>();
  if (label == nullptr && weight == nullptr)
    throw DataError(concat(where, " has neither \"label\" (true, false) nor \"weight\" (a number)"));
  throw DataError(concat(where, ": ", label != nullptr ? "\"label\" is " : "\"weight\" is ",
                         one_line((label != nullptr ? label : weight)->dump(), 60),
                         label != nullptr ? "; it must be true or false"
                                          : "; it must be a number from 0 (not learned) to 1,000,000"));
}

size_t first_learned(const std::vector<ReadRow>& segments) {
  const auto is_learned = [](const ReadRow& segment) { return segment.weight > 0; };
  return static_cast<size_t>(std::ranges::find_if(segments, is_learned) - segments.begin());
}

}  // namespace

// Each piece is a side: its text and its weight.
ReadRow SegmentsEncoder::read(const RowParser& row) const {
  const auto found = row.json("segments");
  if (!found) throw DataError("field \"segments\" is missing");
  const Json segments = list_of(*found, "\"segments\"");
  ReadRow read{.weight = weight_of_row(row, config_.loss_weight), .unused_marks = unused_marks(config_, row)};
  for (const Json& segment : segments) {
    const std::string where = concat("segment ", read.sides.size() + 1);
    if (!segment.is_object()) throw DataError(concat(where, " is ", type_text(segment), ", not an object"));
    ReadRow piece;
    piece.texts.input = required_text(segment, "text", where);
    piece.weight = weight_of_segment(segment, where);
    read.fields += concat(piece.texts.input, '\0', static_cast<double>(piece.weight), '\0');
    read.sides.push_back(std::move(piece));
  }
  read.fields += weight_as_content(read.weight);
  return read;
}

std::vector<EncodedSample> SegmentsEncoder::encode(const ReadRow& row) const {
  std::vector<int32_t> ids;
  std::vector<bool> learn;
  std::vector<float> weights;
  for (const ReadRow& piece : row.sides) {
    const std::vector<int32_t> more = tokenizer_.encode(piece.texts.input, /*add_special_tokens=*/false);
    ids.insert(ids.end(), more.begin(), more.end());
    learn.resize(ids.size(), piece.weight > 0);
    weights.resize(ids.size(), piece.weight);
  }
  EncodedSample encoded = encode_marked(ids, learn, weights, config_);
  if (std::ranges::all_of(encoded.sample.weights, [](float weight) { return weight == 0 || weight == 1; }))
    encoded.sample.weights.clear();
  std::vector<EncodedSample> samples{std::move(encoded)};
  weigh(samples, row.weight);
  return samples;
}

Dataset::Texts SegmentsEncoder::texts(const ReadRow& row) const {
  Dataset::Texts texts;
  for (size_t i = 0; i < row.sides.size(); i++)
    (i < first_learned(row.sides) ? texts.input : texts.target) += row.sides[i].texts.input;
  return texts;
}

std::vector<std::string> SegmentsEncoder::learned(const ReadRow& row) const {
  std::vector<std::string> all;
  for (const ReadRow& piece : row.sides)
    if (piece.weight > 0) all.push_back(piece.texts.input);
  return all;
}

std::vector<int32_t> SegmentsEncoder::prompt(const ReadRow& row) const {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < first_learned(row.sides); i++) {
    const std::vector<int32_t> more =
        tokenizer_.encode(row.sides[i].texts.input, /*add_special_tokens=*/false);
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

std::string SegmentsEncoder::settings() const {
  return concat("segments\nlength ", config_.max_length, "\nlong ", static_cast<int>(config_.long_samples),
                " ", static_cast<int>(config_.truncation_side), "\nweight ", config_.loss_weight);
}

std::unique_ptr<RowEncoder> make_segments_encoder(const DataConfig& config, const RowParser& first_row,
                                                  const Tokenizer& tokenizer, bool encoder_decoder) {
  if (config.kind != DataKind::automatic && config.kind != DataKind::completion) return nullptr;
  if (!config.input.empty() || !config.target.empty()) return nullptr;
  const std::vector<std::string> fields = first_row.fields();
  if (std::ranges::find(fields, "segments") == fields.end()) return nullptr;
  if (encoder_decoder)
    throw ConfigError(
        "rows of \"segments\" are for decoders; an encoder-decoder learns pairs (data.input, data.target)");
  if (config.long_samples == LongSamples::split)
    throw ConfigError(
        "data.long_samples: split is for running text (data.kind: text); choose truncate or drop");
  return std::make_unique<SegmentsEncoder>(config, tokenizer);
}

}  // namespace trainer
