#include "data/label_encoder.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <map>
#include <sstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/text.h"
#include "data/count_labels.h"

namespace trainer {
namespace {

constexpr std::array kLabelFields{"label", "labels", "class",  "category", "intent", "sentiment",
                                  "topic", "score",  "rating", "stars",    "value",  "similarity"};
constexpr std::array kTextFields{"text",     "sentence", "content", "prompt",    "input",
                                 "question", "review",   "body",    "document",  "message",
                                 "tweet",    "query",    "comment", "utterance", "article"};
// Two texts of which the label is about.
constexpr std::array kTwoTexts{std::pair("premise", "hypothesis"), std::pair("sentence1", "sentence2"),
                               std::pair("text1", "text2"), std::pair("question1", "question2"),
                               std::pair("query", "passage")};

bool is_field(const std::vector<std::string>& names, const char* name) {
  return std::ranges::find(names, name) != names.end();
}

std::string text_field(const std::vector<std::string>& names, RowScore score) {
  for (const char* answer : {"completion", "response", "answer", "chosen"}) {
    if (score == RowScore::answer && is_field(names, "prompt") && is_field(names, answer))
      return concat("{prompt}{", answer, "}");
  }
  for (const auto& [first, second] : kTwoTexts) {
    if (is_field(names, first) && is_field(names, second)) return concat("{", first, "}\n{", second, "}");
  }
  for (const char* name : kTextFields) {
    if (is_field(names, name)) return name;
  }
  return "";
}

// "01" and "-0" are names: a class that is called 1 would not be theirs.
std::optional<int64_t> whole_number(const std::string& text) {
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return std::to_string(value) == text ? std::optional(value) : std::nullopt;
}

std::optional<float> real_number(const std::string& text) {
  float value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

// Numbers from 0 are the outputs that they name, as in Hugging Face data sets, also if some do not occur.
// Other labels are sorted: as numbers, or by their names.
std::vector<std::string> classes_of(const std::map<std::string, int64_t>& counts) {
  constexpr int64_t kMostGaps = 1000;
  std::vector<int64_t> numbers;
  std::vector<std::string> names;
  for (const auto& [name, count] : counts) {
    names.push_back(name);
    if (const auto number = whole_number(name)) numbers.push_back(*number);
  }
  if (numbers.size() != names.size()) return names;
  std::ranges::sort(numbers);
  if (!numbers.empty() && numbers.front() >= 0 && numbers.back() < kMostGaps + std::ssize(numbers)) {
    const int64_t last = numbers.back();
    numbers.clear();
    for (int64_t number = 0; number <= last; number++) numbers.push_back(number);
  }
  names.clear();
  for (const int64_t number : numbers) names.push_back(std::to_string(number));
  return names;
}

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// A row that was made for another objective.
[[noreturn]] void throw_no_label(const std::vector<std::string>& names) {
  const bool answers = is_field(names, "chosen") && is_field(names, "rejected");
  throw DataError(
      concat("of the fields ", join_some(names), ", none is known as the label of a text; ",
             answers ? "these are preferences, which objective.name=reward or dpo learns"
                     : "name it with data.target, and the text with data.input (rows that teach answers "
                       "are for objective.name=sft)"));
}

}  // namespace

void set_label(Sample& sample, int32_t label, bool encoder_decoder) {
  sample.labels.assign(sample.input_ids.size() + (encoder_decoder ? 0 : 1), kIgnore);
  sample.labels.back() = label;
}

int32_t label_of_number(float number) { return std::bit_cast<int32_t>(number); }

EncodedSample encode_scored(std::vector<int32_t> ids, const DataConfig& config, const Tokenizer& tokenizer,
                            bool encoder_decoder) {
  EncodedSample encoded;
  const int64_t most = encoder_decoder ? config.max_source_length : config.max_length;
  encoded.input_lost = truncate_keeping_eos(ids, most, tokenizer.eos_id(), config.truncation_side);
  const auto pad = tokenizer.pad_id() ? tokenizer.pad_id() : tokenizer.eos_id();
  while (!encoder_decoder && ids.size() > 1 && pad && ids.back() == *pad) ids.pop_back();
  if (ids.empty()) throw DataError("the text has no token");
  encoded.sample.input_ids = std::move(ids);
  encoded.input_tokens = std::ssize(encoded.sample.input_ids);
  encoded.target_tokens = encoder_decoder ? encoded.input_tokens : 0;
  encoded.dropped = config.long_samples == LongSamples::drop && encoded.input_lost > 0;
  set_label(encoded.sample, 0, encoder_decoder);
  return encoded;
}

LabelEncoder::LabelEncoder(const Fields& fields, std::unique_ptr<ChatEncoder> chat, const DataConfig& config,
                           const Tokenizer& tokenizer, bool encoder_decoder)
    : fields_(fields),
      chat_(std::move(chat)),
      config_(config),
      tokenizer_(tokenizer),
      encoder_decoder_(encoder_decoder) {
  if (!chat_ && config.labels.score != RowScore::tags)
    input_ = TextTemplate::parse(fields.input, "data.input");
}

std::optional<std::string> LabelEncoder::label_text(const RowParser& row) const {
  if (!config_.labels.required) return std::nullopt;
  const auto value = row.json(fields_.target);
  if (!value || value->is_null())
    throw DataError(concat("field \"", fields_.target, "\", the label, is missing"));
  return label_in(*value);
}

std::string LabelEncoder::label_in(const nlohmann::ordered_json& found) const {
  const nlohmann::ordered_json* const value = &found;
  const bool of_class = config_.labels.score != RowScore::number;
  std::string text;
  if (value->is_string()) {
    text = *value;
  } else if (value->is_number_float() && of_class && *value == std::floor(value->get<double>())) {
    text = std::to_string(value->get<int64_t>());
  } else if (value->is_number_integer() || value->is_boolean() || (value->is_number() && !of_class)) {
    text = value->dump();
  }
  if (text.empty() || (of_class && value->is_number_float() && !whole_number(text)))
    throw DataError(concat("field \"", fields_.target, "\" is ", value->dump(), "; a label is ",
                           of_class ? "a text or a whole number (for other numbers: "
                                      "objective.name=regression)"
                                    : "a number"));
  if (!of_class && !real_number(text))
    throw DataError(concat("field \"", fields_.target, "\" is \"", text,
                           "\", and regression needs a number (for names: objective.name=classification)"));
  return text;
}

// Each word is a side of the row, with its tag.
ReadRow LabelEncoder::read_words(const RowParser& row) const {
  const auto words = row.json(fields_.input), tags = row.json(fields_.target);
  const bool untagged = !config_.labels.required;
  const auto is_text = [](const nlohmann::ordered_json& word) { return word.is_string(); };
  ReadRow read;
  if (!words || !(words->is_array() ? std::ranges::all_of(*words, is_text) : untagged && words->is_string()))
    throw DataError(concat("field \"", fields_.input, "\" must be the list of a text's words"));
  const std::vector<std::string> all =
      words->is_string() ? split_words(words->get<std::string>()) : words->get<std::vector<std::string>>();
  if (!untagged && (!tags || !tags->is_array() || tags->size() != all.size()))
    throw DataError(concat("field \"", fields_.target, "\" must be a list with a tag for each of the ",
                           all.size(), " words"));
  for (size_t i = 0; i < all.size(); i++) {
    ReadRow& word = read.sides.emplace_back();
    word.texts = {all[i], untagged ? "" : label_in((*tags)[i])};
    if (!untagged) refuse_unknown(word.texts.target);
    read.texts.input += (i > 0 ? " " : "") + word.texts.input;
    read.texts.target += (i > 0 ? " " : "") + word.texts.target;
  }
  read.weight = weight_of_row(row, config_.loss_weight);
  return read;
}

ReadRow LabelEncoder::read(const RowParser& row) const {
  if (config_.labels.score == RowScore::tags) return read_words(row);
  ReadRow read;
  if (chat_) {
    read = chat_->read(row);
    read.texts.input = chat_->texts(read).input;
  } else {
    read.texts.input = input_->apply(row);
    read.weight = weight_of_row(row, config_.loss_weight);
  }
  read.texts.target = label_text(row).value_or("");
  if (!read.texts.target.empty()) refuse_unknown(read.texts.target);
  return read;
}

void LabelEncoder::refuse_unknown(const std::string& label) const {
  const RowLabels& labels = config_.labels;
  if (labels.score == RowScore::number || labels.classes.empty()) return;
  if (std::ranges::find(labels.classes, label) != labels.classes.end()) return;
  throw DataError(concat("the label \"", label, "\" is none of the model's ", std::ssize(labels.classes),
                         " classes (", join_some(labels.classes, 10), "); objective.labels gives it others"));
}

std::vector<int32_t> LabelEncoder::ids_of(const ReadRow& row) const {
  if (chat_) return std::move(chat_->encode(row).front().sample.input_ids);
  std::vector<int32_t> ids = tokenizer_.encode(row.texts.input, true);
  const auto end = tokenizer_.eos_id();
  if (config_.labels.score == RowScore::answer && end && !ids.empty() && ids.back() != *end)
    ids.push_back(*end);  // as answers are learned
  return ids;
}

// The first token of a word has its tag, as in the examples of Transformers.
std::vector<EncodedSample> LabelEncoder::encode_words(const ReadRow& row) const {
  std::vector<int32_t> ids, labels;
  const auto& classes = config_.labels.classes;
  for (const ReadRow& word : row.sides) {
    const std::vector<int32_t> pieces = tokenizer_.encode(word.texts.input, false);
    ids.insert(ids.end(), pieces.begin(), pieces.end());
    if (pieces.empty()) continue;
    const auto at = std::ranges::find(classes, word.texts.target) - classes.begin();
    labels.push_back(word.texts.target.empty() ? 0 : static_cast<int32_t>(at));
    labels.resize(ids.size(), kIgnore);
  }
  const auto end = tokenizer_.eos_id();
  if (end) ids.push_back(*end);
  EncodedSample encoded;
  encoded.input_lost = truncate_keeping_eos(ids, config_.max_length, end, TruncationSide::right);
  labels.resize(ids.size() - (end ? 1 : 0));
  labels.insert(labels.begin(), kIgnore);  // a label is one place behind its token
  labels.resize(ids.size() + 1, kIgnore);
  encoded.input_tokens = std::ssize(ids);
  encoded.dropped = config_.long_samples == LongSamples::drop && encoded.input_lost > 0;
  encoded.sample.input_ids = std::move(ids);
  encoded.sample.labels = std::move(labels);
  std::vector<EncodedSample> samples{std::move(encoded)};
  weigh(samples, row.weight);
  weigh_classes(samples.front().sample);
  return samples;
}

void LabelEncoder::weigh_classes(Sample& sample) const {
  const auto& weights = config_.labels.weights;
  if (weights.empty()) return;
  if (sample.weights.empty()) sample.weights.assign(sample.labels.size(), 1.0F);
  for (size_t i = 0; i < sample.labels.size(); i++) {
    if (sample.labels[i] == kIgnore) continue;
    const double weight = weights.at(static_cast<size_t>(sample.labels[i]));
    sample.weights[i] *= static_cast<float>(weight);
    if (weight == 0) sample.labels[i] = kIgnore;
  }
}

std::vector<EncodedSample> LabelEncoder::encode(const ReadRow& row) const {
  if (config_.labels.score == RowScore::tags) return encode_words(row);
  std::vector<EncodedSample> samples;
  if (chat_) {  // truncated by the chat's encoder, which counts what is lost
    EncodedSample of_chat = std::move(chat_->encode(row).front());
    samples.push_back(
        encode_scored(std::move(of_chat.sample.input_ids), config_, tokenizer_, encoder_decoder_));
    samples.front().input_lost = of_chat.input_lost + of_chat.target_lost;
    samples.front().dropped = of_chat.dropped;
  } else {
    samples.push_back(encode_scored(ids_of(row), config_, tokenizer_, encoder_decoder_));
  }
  Sample& sample = samples.front().sample;
  const std::string& label = row.texts.target;
  if (config_.labels.score == RowScore::number) {
    set_label(sample, label_of_number(real_number(label).value_or(0)), encoder_decoder_);
    weigh(samples, row.weight);
    return samples;
  }
  const auto& classes = config_.labels.classes;
  const auto at = label.empty() ? 0 : std::ranges::find(classes, label) - classes.begin();
  set_label(sample, static_cast<int32_t>(at), encoder_decoder_);
  weigh(samples, row.weight);
  weigh_classes(sample);
  return samples;
}

std::vector<int32_t> LabelEncoder::prompt(const ReadRow& row) const { return ids_of(row); }

std::string LabelEncoder::content(const ReadRow& row) const {
  return concat(question(row), '\0', row.texts.target, weight_as_content(row.weight));
}

std::string LabelEncoder::question(const ReadRow& row) const {
  return chat_ ? chat_->content(row) : row.texts.input;
}

std::string LabelEncoder::settings() const {
  std::string settings = concat("labels ", static_cast<int>(config_.labels.score), " ", fields_.input, " ",
                                fields_.target, "\nlengths ", config_.max_source_length, " ",
                                config_.max_length, "\nlong ", static_cast<int>(config_.long_samples), " ",
                                static_cast<int>(config_.truncation_side), "\nweight ", config_.loss_weight);
  for (const std::string& name : config_.labels.classes) settings += concat("\nclass ", name);
  return chat_ ? concat(settings, "\n", chat_->settings()) : settings;
}

std::vector<std::string> LabelEncoder::labels_of(const RowParser& row) const {
  std::vector<std::string> labels;
  if (config_.labels.score == RowScore::tags) {
    const auto tags = row.json(fields_.target);
    for (size_t i = 0; tags && tags->is_array() && i < tags->size(); i++)
      labels.push_back(label_in((*tags)[i]));
  } else if (auto label = label_text(row)) {
    labels.push_back(std::move(*label));
  }
  return labels;
}

LabelCounts LabelEncoder::settle(const std::vector<RowFile>& files, const RowChoice& choice,
                                 int64_t num_workers) {
  CountedLabels found = count_labels(*this, files, choice, num_workers);
  if (config_.labels.classes.empty()) config_.labels.classes = classes_of(found.counts);
  LabelCounts settled{{}, found.labels, found.all_equal, found.first};
  for (const std::string& name : config_.labels.classes)
    settled.classes.emplace_back(name, found.counts[name]);
  return settled;
}

std::unique_ptr<LabelEncoder> make_label_encoder(const DataConfig& config, const std::string& model,
                                                 const RowParser& first_row, const Tokenizer& tokenizer,
                                                 bool encoder_decoder) {
  const std::vector<std::string> names = first_row.fields();
  Fields fields{DataKind::classification, config.input, config.target};
  if (config.labels.score == RowScore::tags) {
    for (const char* name : {"tokens", "words", "text"})
      if (fields.input.empty() && is_field(names, name)) fields.input = name;
    for (const char* name : {"tags", "ner_tags", "pos_tags", "chunk_tags"})
      if (fields.target.empty() && is_field(names, name)) fields.target = name;
  }
  for (const char* name : kLabelFields) {
    if (fields.target.empty() && is_field(names, name) && config.input != name) fields.target = name;
  }
  if (fields.target.empty() && config.labels.required) throw_no_label(names);
  if (fields.target.empty()) fields.target = "label";
  const bool talks = is_field(names, "messages") || is_field(names, "conversations");
  const auto form = talks && config.input.empty() ? conversation_form(names) : std::nullopt;
  if (form) {
    if (encoder_decoder)
      throw DataError("conversations are scored by decoders; give an encoder-decoder a text (data.input)");
    DataConfig of_chat = config;
    of_chat.kind = DataKind::chat;
    of_chat.input = of_chat.target = "";
    return std::make_unique<LabelEncoder>(Fields{fields.kind, "messages", fields.target},
                                          chat_encoder_of(*form, of_chat, model, tokenizer, encoder_decoder),
                                          config, tokenizer, encoder_decoder);
  }
  if (fields.input.empty()) fields.input = text_field(names, config.labels.score);
  if (fields.input.empty() || fields.input == fields.target)
    throw DataError(
        concat("of the fields ", join_some(names), ", none is known as the text; name it with data.input"));
  return std::make_unique<LabelEncoder>(fields, nullptr, config, tokenizer, encoder_decoder);
}

}  // namespace trainer
