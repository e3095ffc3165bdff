#include "data/chat_encoder.h"

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "base/text.h"
#include "base/warn_once.h"
#include "data/fields.h"
#include "text/chat/roles.h"
#include "text/chat/row_json.h"
#include "text/chat/template_fit.h"

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;

const char* field_of(ConversationForm form) {
  if (form == ConversationForm::prompt_completion) return "prompt, completion";
  if (form == ConversationForm::messages) return "messages";
  return form == ConversationForm::conversations ? "conversations" : "instruction, input, output";
}

// Returns source and target of Alpaca fields for an encoder-decoder, without a template.
Dataset::Texts plain_texts(const Conversation& conversation) {
  const Json& messages = conversation.messages;
  if (messages.size() > 3 || (messages.size() == 3 && messages[0]["role"] != "system"))
    throw DataError("\"history\" needs a chat template (data.chat_template) on an encoder-decoder");
  Dataset::Texts texts;
  for (size_t i = 0; i + 1 < messages.size(); i++)
    texts.input += (i ? "\n" : "") + messages[i]["content"].get<std::string>();
  texts.target = messages.back()["content"];
  return texts;
}

// Is a message of the assistant without text, call or reasoning?
bool is_empty_answer(const Json& message) {
  if (message["role"] != "assistant" || message.contains("tool_calls")) return false;
  for (const char* key : {"content", "reasoning_content", "thinking", "reasoning"}) {
    const auto value = message.find(key);
    if (value == message.end() || value->is_null()) continue;
    const std::string text = value->is_string() ? value->get<std::string>() : value->dump();
    if (text.find_first_not_of(" \t\r\n") != std::string::npos) return false;
  }
  return true;
}

void mark_answers(const Conversation& conversation, EncodedSample& encoded) {
  encoded.has_answer = false;
  for (size_t i = 0; i < conversation.messages.size(); i++) {
    const Json& message = conversation.messages[i];
    encoded.has_answer |= message["role"] == "assistant";
    encoded.has_empty_answer |= conversation.weights[i] > 0 && is_empty_answer(message);
  }
}

// The weight of the answer that is an encoder-decoder's target.
float weight_of_target(const Conversation& conversation) {
  const size_t last = before_last_answer(conversation.messages);
  return last < conversation.weights.size() ? conversation.weights[last] : 1;
}

// Weights of 0 and 1 as earlier versions wrote them, so that data with no other weights hold out the same
// rows.
Json weights_as_json(const std::vector<float>& weights) {
  Json json = Json::array();
  for (const float weight : weights)
    json.push_back(weight == 0 || weight == 1 ? Json(weight == 1) : Json(weight));
  return json;
}

// Nothing where no part has a weight, so that such data hold out the same rows as before.
std::string parts_as_content(const std::vector<std::vector<Conversation::PartWeight>>& all) {
  std::string text;
  for (size_t message = 0; message < all.size(); message++)
    for (const auto& [end, weight] : all[message])
      text += concat(',', message, ' ', end, ' ', static_cast<double>(weight));
  return text;
}

void warn_without_end(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  try {
    if (const std::string why = why_no_end_is_learned(chat_template, tokenizer); !why.empty()) warn_once(why);
  } catch (const DataError& error) {  // a template for other conversations
    log::warning(concat("the chat template does not show what ends an answer: ", error.what()));
  }
}

}  // namespace

ChatEncoder::ChatEncoder(ConversationForm form, std::optional<ChatTemplate> chat_template,
                         const DataConfig& config, const Tokenizer& tokenizer, bool encoder_decoder)
    : form_(form),
      template_(std::move(chat_template)),
      config_(config),
      tokenizer_(tokenizer),
      encoder_decoder_(encoder_decoder) {}

ReadRow ChatEncoder::read(const RowParser& row) const {
  const Json json = conversation_row(row);
  // A data set may contain conversations in different forms.
  const ConversationForm form = conversation_form(json).value_or(form_);
  Conversation conversation = read_conversation(json, form, config_.loss_on);
  check(conversation, form);
  return {.conversation = std::move(conversation),
          .weight = weight_of_row(row, config_.loss_weight),
          .unused_marks = unused_marks(config_, row)};
}

void ChatEncoder::check(const Conversation& conversation, ConversationForm form) const {
  if (!template_ && form != ConversationForm::alpaca)
    throw DataError(concat("\"", field_of(form), "\" needs a chat template: data.chat_template"));
  const ChatTemplate* chat_template = template_ ? &*template_ : nullptr;
  if (config_.unknown_marks == UnknownMarks::error)
    refuse_unknown_marks(conversation, chat_template, config_.loss_on);
  refuse_unknown_roles(conversation, chat_template, config_.loss_on);
}

// The weights of the parts of an encoder-decoder's target. What has the weight 0 stays a label, because the
// decoder reads it.
void ChatEncoder::weigh_target(const Conversation& conversation, const std::string& target,
                               EncodedSample& encoded) const {
  const size_t last = before_last_answer(conversation.messages);
  if (last >= conversation.part_weights.size() || conversation.part_weights[last].empty()) return;
  if (target != content_text(conversation.messages[last]))
    throw DataError(concat("message ", last + 1,
                           ": its parts have weights, and it calls functions; give the ",
                           "message one weight"));
  const auto& parts = conversation.part_weights[last];
  std::vector<float> weights;
  for (const TextRange& range : tokenizer_.encode_with_ranges(target, true).ranges)
    weights.push_back(
        range.end == range.begin && range.begin >= target.size() ? 1.0F : weight_at(parts, range.begin));
  const size_t kept = encoded.sample.labels.size();
  if (config_.truncation_side == TruncationSide::left)
    weights.erase(weights.begin(), weights.end() - static_cast<std::ptrdiff_t>(kept));
  weights.resize(kept, 1.0F);
  if (encoded.target_lost > 0) weights.back() = 1;  // the end token is kept
  encoded.sample.weights = std::move(weights);
}

std::vector<EncodedSample> ChatEncoder::encode(const ReadRow& row) const {
  if (encoder_decoder_) {
    const Dataset::Texts both = texts(row);
    std::vector<EncodedSample> samples =
        encode_samples(both.input, both.target, DataKind::seq2seq, config_, tokenizer_);
    weigh_target(row.conversation, both.target, samples.front());
    weigh(samples, row.weight * weight_of_target(row.conversation));
    return samples;
  }
  const ChatTokens chat =
      tokenize_chat(*template_, tokenizer_, row.conversation, config_.loss_on, config_.learn_reasoning);
  EncodedSample encoded = encode_marked(chat.ids, chat.learn, chat.weights, config_);
  mark_answers(row.conversation, encoded);
  std::vector<EncodedSample> samples{std::move(encoded)};
  weigh(samples, row.weight);
  return samples;
}

Dataset::Texts ChatEncoder::texts(const ReadRow& row) const {
  const Conversation& conversation = row.conversation;
  if (!template_) return plain_texts(conversation);
  const auto question = last_question(*template_, conversation, config_.learn_reasoning);
  if (question) return {question->prompt, question->answer};
  if (encoder_decoder_) throw DataError("the conversation has no answer, so there is no target");
  const Json messages = messages_for(*template_, conversation);
  return {template_->render(messages, conversation.tools, conversation.variables), ""};
}

std::vector<std::string> ChatEncoder::learned(const ReadRow& row) const {
  const Json& messages = row.conversation.messages;
  std::vector<std::string> all;
  for (size_t i = encoder_decoder_ ? before_last_answer(messages) : 0; i < messages.size(); i++) {
    if (messages[i]["role"] != "assistant" || row.conversation.weights[i] == 0) continue;
    for (const char* key : {"reasoning_content", "thinking", "reasoning"}) {
      const auto value = messages[i].find(key);
      if (value != messages[i].end() && value->is_string()) all.push_back(value->get<std::string>());
    }
    all.push_back(content_text(messages[i]));
  }
  return all;
}

std::vector<int32_t> ChatEncoder::prompt(const ReadRow& row) const {
  return tokenizer_.encode(texts(row).input, /*add_special_tokens=*/encoder_decoder_);
}

std::optional<int32_t> ChatEncoder::end_of_answer() const {
  if (encoder_decoder_) return std::nullopt;
  return end_of_turn_token(*template_, tokenizer_);
}

std::string ChatEncoder::content(const ReadRow& row) const {
  const Conversation& all = row.conversation;
  return concat('[', all.messages.dump(), ',', all.tools.dump(), ',', all.variables.dump(), ',',
                weights_as_json(all.weights).dump(), parts_as_content(all.part_weights), ']',
                weight_as_content(row.weight));
}

// Does not render the template, because that would cost as much as encoding the sample again.
std::string ChatEncoder::question(const ReadRow& row) const {
  const Conversation& all = row.conversation;
  std::string question = all.tools.dump() + all.variables.dump();
  for (size_t i = 0; i < before_last_answer(all.messages); i++) question += all.messages[i].dump();
  return question;
}

std::string ChatEncoder::settings() const {
  std::string settings =
      concat("chat ", static_cast<int>(form_), "\nloss_on ", static_cast<int>(config_.loss_on), "\nlengths ",
             config_.max_source_length, " ", config_.max_target_length, " ", config_.max_length, "\nlong ",
             static_cast<int>(config_.long_samples), " ", static_cast<int>(config_.truncation_side),
             "\nweight ", config_.loss_weight, "\nmarks ", static_cast<int>(config_.unknown_marks),
             "\nreasoning ", config_.learn_reasoning.is_automatic(), config_.learn_reasoning.of(false), "\n");
  if (!template_) return settings;
  settings += template_->source();
  if (const std::string day = date(); !day.empty()) settings += concat("date ", day, "\n");
  return settings;
}

std::string ChatEncoder::date() const { return template_ ? template_->date() : ""; }

std::string ChatEncoder::input_field() const { return field_of(form_); }

Json conversation_row(const RowParser& row) {
  return row.is_record() ? with_parsed_lists(row.json()) : row.json();
}

namespace {

// A row that cannot be read as JSON has fields with names all the same.
std::optional<ConversationForm> form_of_first(const RowParser& row) {
  const std::vector<std::string> fields = row.fields();
  if (const auto form = conversation_form(fields)) return form;
  const bool may_have = std::ranges::count(fields, "prompt") + std::ranges::count(fields, "completion") > 1;
  return may_have ? conversation_form(conversation_row(row)) : std::nullopt;
}

}  // namespace

std::unique_ptr<RowEncoder> make_chat_encoder(const DataConfig& config, const std::string& model,
                                              const RowParser& first_row, const Tokenizer& tokenizer,
                                              bool encoder_decoder) {
  if (config.kind != DataKind::chat && config.kind != DataKind::automatic) return nullptr;
  const bool named = !config.input.empty() || !config.target.empty();
  if (config.kind == DataKind::automatic && named) return nullptr;
  if (named) throw ConfigError("data.input and data.target: kind chat does not use them; leave them out");
  const auto form = form_of_first(first_row);
  if (form && config.long_samples == LongSamples::split)
    throw ConfigError(
        "data.long_samples: split is for running text (data.kind: text); choose truncate or drop");
  if (!form) {
    if (config.kind == DataKind::automatic) return nullptr;
    throw DataError(concat("kind chat needs messages, conversations, instruction and output, or prompt and ",
                           "completion as lists of messages; the row has ", join_some(first_row.fields())));
  }
  return chat_encoder_of(*form, config, model, tokenizer, encoder_decoder);
}

std::unique_ptr<ChatEncoder> chat_encoder_of(ConversationForm form, const DataConfig& config,
                                             const std::string& model, const Tokenizer& tokenizer,
                                             bool encoder_decoder) {
  std::optional<ChatTemplate> chat_template =
      config.chat_template.empty() ? load_chat_template(model)
                                   : std::optional(read_chat_template(config.chat_template, model));
  // Always a whole day: with the time of day, samples would change while they are read, and an index of them
  // is kept for the day.
  if (chat_template) chat_template->set_date(config.template_date.empty() ? today() : config.template_date);
  const bool plain = encoder_decoder && form == ConversationForm::alpaca;
  if (!chat_template && !plain) {
    const TemplateFit fit = fitting_template(tokenizer);
    throw FormatError(
        concat(model, ": has no chat template, which rows of ", field_of(form),
               " need; give one with data.chat_template: FILE, or take the program's own that fits: "
               "data.chat_template=",
               fit.name, " (", fit.reason, ")",
               form == ConversationForm::alpaca
                   ? ", or say what is read and written: data.input: \"{instruction}\\n{input}\" "
                     "and data.target: output"
                   : ""));
  }
  if (plain && config.chat_template.empty()) chat_template.reset();
  if (chat_template && !encoder_decoder) warn_without_end(*chat_template, tokenizer);
  return std::make_unique<ChatEncoder>(form, std::move(chat_template), config, tokenizer, encoder_decoder);
}

std::string chat_template_directory(const Config& config) {
  const bool has_own =
      config.lora && !config.lora->adapter.empty() && has_chat_template(config.lora->adapter);
  return has_own ? config.lora->adapter : config.model.path;
}

}  // namespace trainer
