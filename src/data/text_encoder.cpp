#include "data/text_encoder.h"

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/random.h"

namespace trainer {

TextEncoder::TextEncoder(const Fields& fields, const DataConfig& config, const Tokenizer& tokenizer)
    : fields_(fields),
      config_(config),
      tokenizer_(tokenizer),
      input_(TextTemplate::parse(fields.input, "data.input")) {
  if (config.long_samples == LongSamples::split && fields.kind != DataKind::text)
    throw ConfigError(
        "data.long_samples: split is for running text (data.kind: text): an answer in pieces "
        "would be learned as several answers; choose truncate or drop");
  if (!fields.target.empty()) target_ = TextTemplate::parse(fields.target, "data.target");
  field_names_ = input_.fields();
  if (target_) field_names_.insert(field_names_.end(), target_->fields().begin(), target_->fields().end());
  std::ranges::sort(field_names_);
  const auto repeated = std::ranges::unique(field_names_);
  field_names_.erase(repeated.begin(), repeated.end());
}

// A row with TRL's lists of messages among rows of texts, or where the configuration asks for texts.
void TextEncoder::refuse_lists(const RowParser& row) const {
  const auto form = row.is_record() ? std::nullopt : conversation_form(row.json());
  if (form != ConversationForm::prompt_completion) return;
  static_cast<void>(read_conversation(row.json(), *form));  // throws where only one of them is a list
  const bool chosen =
      config_.kind != DataKind::automatic || !config_.input.empty() || !config_.target.empty();
  throw DataError(
      concat("\"prompt\" and \"completion\" are lists of messages, ",
             chosen ? "a conversation: leave data.input and data.target out, and set data.kind to chat"
                    : "and rows before have texts there; all rows must have the same"));
}

Dataset::Texts TextEncoder::texts_of(const RowParser& row) const {
  try {
    return {input_.apply(row), target_ ? target_->apply(row) : ""};
  } catch (const DataError&) {
    refuse_lists(row);
    throw;
  }
}

ReadRow TextEncoder::read(const RowParser& row) const {
  ReadRow read{.texts = texts_of(row)};
  for (const std::string& name : field_names_) {
    read.fields += name;
    read.fields += '\0';
    read.fields += row.written(name);
    read.fields += '\0';
  }
  read.weight = weight_of_row(row, config_.loss_weight);
  read.unused_marks = unused_marks(config_, row);
  read.fields += weight_as_content(read.weight);
  return read;
}

std::vector<EncodedSample> TextEncoder::encode(const ReadRow& row) const {
  std::vector<EncodedSample> samples =
      encode_samples(row.texts.input, row.texts.target, fields_.kind, config_, tokenizer_);
  weigh(samples, row.weight);
  return samples;
}

// Returns the tokens before the target. If data.max_length leaves no room for the target, all tokens that are
// left.
std::vector<int32_t> TextEncoder::prompt(const ReadRow& row) const {
  Sample sample = std::move(encode(row).front().sample);
  if (fields_.kind != DataKind::seq2seq) {
    const auto target = std::ranges::find_if(sample.labels, [](int32_t label) { return label != kIgnore; });
    sample.input_ids.resize(static_cast<size_t>(target - sample.labels.begin()));
  }
  return std::move(sample.input_ids);
}

std::string TextEncoder::settings() const {
  return concat("kind ", static_cast<int>(fields_.kind), "\ninput ", fields_.input, "\ntarget ",
                fields_.target, "\nlengths ", config_.max_source_length, " ", config_.max_target_length, " ",
                config_.max_length, "\nlong ", static_cast<int>(config_.long_samples), " ",
                static_cast<int>(config_.truncation_side), "\nweight ", config_.loss_weight);
}

SpanEncoder::SpanEncoder(const Fields& fields, const DataConfig& config, const Tokenizer& tokenizer)
    : TextEncoder(fields, config, tokenizer),
      config_(config),
      tokenizer_(tokenizer),
      noise_(config, tokenizer) {}

// Which denoiser makes a piece is a function of the text: lengths must not change with the epoch. It is kept
// in front of the piece's ids.
std::vector<EncodedSample> SpanEncoder::encode(const ReadRow& row) const {
  const std::vector<int32_t> ids = tokenizer_.encode(row.texts.input, false);
  const uint64_t text = derive(0, row.texts.input);
  std::vector<EncodedSample> samples;
  for (auto begin = ids.begin(); begin != ids.end();) {
    const size_t denoiser = derive(text, samples.size()) % noise_.denoisers();
    const auto end = begin + std::min<int64_t>(noise_.longest(denoiser), ids.end() - begin);
    if (end - begin < 2) break;
    EncodedSample piece;
    piece.kept.push_back(static_cast<int32_t>(denoiser));
    piece.kept.insert(piece.kept.end(), begin, end);
    piece.sample = from_kept(piece.kept, row.noise);
    const NoisedLengths lengths = noise_.lengths(denoiser, end - begin);
    piece.input_tokens = lengths.source;
    piece.target_tokens = lengths.target;
    samples.push_back(std::move(piece));
    begin = end;
  }
  const bool drops = config_.long_samples == LongSamples::drop && samples.size() > 1;
  for (EncodedSample& sample : samples) sample.dropped = drops;
  weigh(samples, row.weight);
  return samples;
}

Sample SpanEncoder::from_kept(std::vector<int32_t> ids, uint64_t noise) const {
  return noise_.sample(static_cast<size_t>(ids.front()), std::span(ids).subspan(1), noise);
}

std::string SpanEncoder::settings() const {
  return concat(TextEncoder::settings(), "\nnoise ", static_cast<int>(config_.noise), " ",
                config_.noise_rate.value_or(0), " ", config_.noise_span);
}

}  // namespace trainer
