#include "data/answers_encoder.h"

#include <algorithm>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/data/batching.h"

#include "data/label_encoder.h"
#include "data/text_encoder.h"

namespace trainer {
namespace {

constexpr int64_t kNoLimit = 10'000'000;  // tokens; as the largest data.max_length

// Removes tokens at the beginning, or those after max_length, and counts them.
void keep_part(EncodedSample& side, int64_t from_beginning, int64_t max_length) {
  Sample& sample = side.sample;
  const int64_t size = std::ssize(sample.input_ids);
  const int64_t first = std::min(from_beginning, size), last = std::min(first + max_length, size);
  side.input_tokens = side.target_tokens = side.input_lost = side.target_lost = 0;
  for (int64_t i = 0; i < size; i++) {
    const bool kept = i >= first && i < last, target = sample.labels[static_cast<size_t>(i)] != kIgnore;
    (kept ? target ? side.target_tokens : side.input_tokens : target ? side.target_lost : side.input_lost)++;
  }
  const auto keep = [&](auto& values) {
    if (!values.empty()) values = {values.begin() + first, values.begin() + last};
  };
  keep(sample.input_ids);
  keep(sample.labels);
  keep(sample.weights);
}

// The prompt's labels have the weight 0: they are no part of the answer, but of its own loss.
void count_prompt(Sample& sample) {
  if (sample.weights.empty()) sample.weights.assign(sample.labels.size(), 1.0F);
  for (size_t i = 0; i < sample.labels.size(); i++) {
    if (sample.labels[i] != kIgnore) continue;
    sample.labels[i] = sample.input_ids[i];
    sample.weights[i] = 0;
  }
}

}  // namespace

AnswersEncoder::AnswersEncoder(DataKind kind, std::unique_ptr<RowEncoder> one, const ChatEncoder* chat,
                               const DataConfig& config, const Tokenizer& tokenizer, bool encoder_decoder)
    : kind_(kind),
      one_(std::move(one)),
      chat_(chat),
      config_(config),
      tokenizer_(tokenizer),
      encoder_decoder_(encoder_decoder) {}

ReadRow AnswersEncoder::read(const RowParser& row) const {
  AnswersRow answers = read_answers(conversation_row(row), kind_);
  if (answers.is_chat() != (chat_ != nullptr))
    throw DataError(concat("is ", answers.is_chat() ? "messages" : "text", ", where the first row is ",
                           chat_ != nullptr ? "messages" : "text"));
  ReadRow read{.unused_marks = unused_marks(config_, row), .desirable = answers.desirable};
  for (Conversation& conversation : answers.conversations) {
    chat_->check(conversation, answers.form);
    read.sides.push_back({.conversation = std::move(conversation)});
  }
  for (std::string& answer : answers.answers) {
    ReadRow side{.texts = {answers.prompt, std::move(answer)}};
    side.fields = concat(side.texts.input, '\0', side.texts.target, '\0');
    read.sides.push_back(std::move(side));
  }
  return read;
}

// Prompt and answer are one text, as TRL's RewardTrainer tokenizes them.
std::vector<EncodedSample> AnswersEncoder::encode_to_score(const ReadRow& row) const {
  std::vector<EncodedSample> sides;
  for (const ReadRow& side : row.sides) {
    std::vector<int32_t> ids;
    if (chat_ != nullptr) {
      ids = std::move(one_->encode(side).front().sample.input_ids);
    } else {
      ids = tokenizer_.encode(side.texts.input + side.texts.target, true);
      const auto end = tokenizer_.eos_id();
      if (end && !ids.empty() && ids.back() != *end) ids.push_back(*end);
    }
    sides.push_back(encode_scored(std::move(ids), config_, tokenizer_, encoder_decoder_));
  }
  const bool equal = sides.size() > 1 && sides[0].sample.input_ids == sides[1].sample.input_ids;
  const bool dropped = std::ranges::any_of(sides, &EncodedSample::dropped);
  for (EncodedSample& side : sides) {
    side.equal_sides = equal;
    side.dropped = dropped;
  }
  return sides;
}

std::vector<EncodedSample> AnswersEncoder::encode(const ReadRow& row) const {
  if (config_.labels.score == RowScore::answer) return encode_to_score(row);
  std::vector<EncodedSample> sides;
  for (const ReadRow& side : row.sides) {
    std::vector<EncodedSample> samples = one_->encode(side);
    sides.push_back(std::move(samples.front()));
    sides.back().sample.desirable = row.desirable;
    if (!teaches(sides.back()))
      throw DataError("an answer has nothing that counts in the loss (data.loss_on, weight)");
  }
  if (!encoder_decoder_) truncate(sides);
  const bool equal = sides.size() > 1 && sides[0].sample.input_ids == sides[1].sample.input_ids &&
                     sides[0].sample.labels == sides[1].sample.labels;
  const bool drops = config_.long_samples == LongSamples::drop;
  const bool leaves_out = std::ranges::any_of(sides, [&](const EncodedSample& side) {
    return !teaches(side) || (drops && side.input_lost + side.target_lost > 0);
  });
  for (EncodedSample& side : sides) {
    side.dropped = leaves_out;
    side.equal_sides = equal;
  }
  if (config_.loss_on == LossOn::everything && !encoder_decoder_ && sides.size() > 1)
    count_prompt(sides.front().sample);
  return sides;
}

// Both sides lose the same at the beginning, so that the prompt stays the same.
void AnswersEncoder::truncate(std::vector<EncodedSample>& sides) const {
  int64_t over = 0;
  for (const EncodedSample& side : sides)
    over = std::max(over, std::ssize(side.sample.input_ids) - config_.max_length);
  const bool left = config_.truncation_side == TruncationSide::left;
  for (EncodedSample& side : sides)
    keep_part(side, left ? std::max<int64_t>(over, 0) : 0, config_.max_length);
}

bool AnswersEncoder::teaches(const EncodedSample& side) const {
  return supervised_tokens(side.sample, encoder_decoder_) > 0;
}

std::vector<std::string> AnswersEncoder::learned(const ReadRow& row) const {
  std::vector<std::string> all;
  for (const ReadRow& side : row.sides) {
    const std::vector<std::string> texts = one_->learned(side);
    all.insert(all.end(), texts.begin(), texts.end());
  }
  return all;
}

std::vector<int32_t> AnswersEncoder::prompt(const ReadRow& row) const {
  if (chat_ != nullptr || encoder_decoder_) return one_->prompt(row.sides.front());
  Sample sample = std::move(encode(row).back().sample);  // the chosen answer's prompt may have labels
  const auto target = std::ranges::find_if(sample.labels, [](int32_t label) { return label != kIgnore; });
  sample.input_ids.resize(static_cast<size_t>(target - sample.labels.begin()));
  return std::move(sample.input_ids);
}

std::string AnswersEncoder::content(const ReadRow& row) const {
  std::string all = row.desirable ? "" : "undesirable\n";
  for (const ReadRow& side : row.sides) all += concat(one_->content(side), '\n');
  return all;
}

std::string AnswersEncoder::settings() const {
  return concat("answers ", static_cast<int>(kind_), " ", chat_ != nullptr, " ",
                static_cast<int>(config_.labels.score), "\nlength ", config_.max_length, "\nlong ",
                static_cast<int>(config_.long_samples), " ", static_cast<int>(config_.truncation_side),
                "\nloss on ", static_cast<int>(config_.loss_on), "\n", one_->settings());
}

std::string AnswersEncoder::target_field() const {
  return kind_ == DataKind::preference ? "chosen, rejected" : "judged answer";
}

std::unique_ptr<RowEncoder> make_answers_encoder(const DataConfig& config, const std::string& model,
                                                 const RowParser& first_row, const Tokenizer& tokenizer,
                                                 bool encoder_decoder) {
  const AnswersRow row = read_answers(conversation_row(first_row), config.kind);
  DataConfig of_one = config;
  of_one.long_samples = LongSamples::truncate;
  if (config.loss_on == LossOn::everything) of_one.loss_on = DataConfig{}.loss_on;
  if (!encoder_decoder) of_one.max_length = kNoLimit;
  std::unique_ptr<RowEncoder> one;
  const ChatEncoder* chat = nullptr;
  if (row.is_chat()) {
    of_one.kind = DataKind::chat;
    auto made = chat_encoder_of(row.form, of_one, model, tokenizer, encoder_decoder);
    chat = made.get();
    one = std::move(made);
  } else {
    const DataKind kind = encoder_decoder ? DataKind::seq2seq : DataKind::completion;
    one = std::make_unique<TextEncoder>(Fields{kind, "prompt", "chosen"}, of_one, tokenizer);
  }
  if (config.labels.score == RowScore::answer && encoder_decoder && chat != nullptr)
    throw DataError("conversations are scored by decoders; give an encoder-decoder texts");
  return std::make_unique<AnswersEncoder>(config.kind, std::move(one), chat, config, tokenizer,
                                          encoder_decoder);
}

}  // namespace trainer
