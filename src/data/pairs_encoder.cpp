#include "data/pairs_encoder.h"

#include <algorithm>
#include <array>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/text.h"
#include "data/label_encoder.h"

namespace trainer {
namespace {

// A text and one that belongs to it, as data sets of sentence-transformers name them.
constexpr std::array kSameMeaning{
    std::pair("anchor", "positive"),     std::pair("query", "positive"),   std::pair("query", "document"),
    std::pair("query", "passage"),       std::pair("query", "answer"),     std::pair("question", "answer"),
    std::pair("sentence1", "sentence2"), std::pair("text1", "text2"),      std::pair("premise", "hypothesis"),
    std::pair("title", "body"),          std::pair("question", "passage"), std::pair("set", "positive")};

}  // namespace

PairsEncoder::PairsEncoder(const std::vector<std::string>& fields, const DataConfig& config,
                           const Tokenizer& tokenizer)
    : fields_(fields), config_(config), tokenizer_(tokenizer) {
  for (const std::string& field : fields) sides_.push_back(TextTemplate::parse(field, "data.input"));
}

ReadRow PairsEncoder::read(const RowParser& row) const {
  ReadRow read;
  for (const TextTemplate& side : sides_) {
    ReadRow& text = read.sides.emplace_back();
    text.texts.input = side.apply(row);
    read.fields += concat(text.texts.input, '\0');
  }
  read.texts = {read.sides[0].texts.input, read.sides[1].texts.input};
  return read;
}

std::vector<EncodedSample> PairsEncoder::encode(const ReadRow& row) const {
  std::vector<EncodedSample> samples;
  for (const ReadRow& side : row.sides)
    samples.push_back(encode_scored(tokenizer_.encode(side.texts.input, true), config_, tokenizer_,
                                    /*encoder_decoder=*/false));
  const bool dropped = std::ranges::any_of(samples, &EncodedSample::dropped);
  const bool equal = samples[0].sample.input_ids == samples[1].sample.input_ids;
  for (EncodedSample& sample : samples) {
    sample.dropped = dropped;
    sample.equal_sides = equal;
  }
  return samples;
}

std::string PairsEncoder::settings() const {
  return concat("pairs ", join(fields_), "\nlength ", config_.max_length, " ",
                static_cast<int>(config_.long_samples), " ", static_cast<int>(config_.truncation_side));
}

std::string PairsEncoder::target_field() const {
  return join(std::vector<std::string>(fields_.begin() + 1, fields_.end()));
}

std::unique_ptr<RowEncoder> make_pairs_encoder(const DataConfig& config, const RowParser& first_row,
                                               const Tokenizer& tokenizer) {
  const std::vector<std::string> names = first_row.fields();
  const auto has = [&](const char* name) { return std::ranges::find(names, name) != names.end(); };
  std::vector<std::string> fields{config.input, config.target};
  for (const auto& [text, other] : kSameMeaning) {
    if (!fields[0].empty() && !fields[1].empty()) break;
    if (has(text) && has(other)) fields = {text, other};
  }
  if (fields[0].empty() || fields[1].empty())
    throw DataError(concat("of the fields ", join_some(names),
                           ", no two are known as texts that belong together (anchor and positive, query and "
                           "document, sentence1 and sentence2); name them with data.input and data.target"));
  if (has("negative")) fields.emplace_back("negative");
  return std::make_unique<PairsEncoder>(fields, config, tokenizer);
}

}  // namespace trainer
