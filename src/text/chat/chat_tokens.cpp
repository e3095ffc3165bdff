// Turns a conversation into ids, and finds which of them are learned.
#include <algorithm>
#include <iterator>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/text/conversation.h"

#include "text/chat/row_json.h"
#include "text/tokenizer/pipeline_tokenizer.h"

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;

// The answers that count in the loss, in the order of the text.
void keep_counting(std::vector<RenderedChat::Answer>& answers, const Conversation& conversation,
                   LossOn loss_on) {
  size_t last = 0;
  for (const auto& answer : answers) last = std::max(last, answer.message);
  std::erase_if(answers, [&](const RenderedChat::Answer& answer) {
    return conversation.weights[answer.message] == 0 ||
           (loss_on == LossOn::last_turn && answer.message != last);
  });
}

// Leaves out the reasoning that is not learned.
void skip_reasoning(std::vector<RenderedChat::Answer>& answers, BoolOrAuto learn_reasoning) {
  for (RenderedChat::Answer& answer : answers) {
    if (!learn_reasoning.of(!answer.empty_reasoning)) answer.begin = answer.after_reasoning;
  }
}

// The weight of each token: that of its answer's message, or `outside`. Tokens and answers are in the order
// of the text. For a token with an empty range, its position counts.
std::vector<float> weights_of(const std::vector<TextRange>& tokens,
                              const std::vector<RenderedChat::Answer>& answers,
                              const Conversation& conversation, float outside) {
  std::vector<float> weights(tokens.size(), outside);
  size_t next = 0;
  for (size_t i = 0; i < tokens.size(); i++) {
    while (next < answers.size() && answers[next].end <= tokens[i].begin) next++;
    if (next == answers.size()) break;
    if (std::max(tokens[i].end, tokens[i].begin + 1) > answers[next].begin)
      weights[i] = conversation.weights[answers[next].message];
  }
  return weights;
}

bool weighs_parts(const Conversation& conversation, size_t message) {
  return message < conversation.part_weights.size() && !conversation.part_weights[message].empty();
}

bool weighs_parts(const Conversation& conversation) {
  return std::ranges::any_of(conversation.part_weights, [](const auto& parts) { return !parts.empty(); });
}

// Multiplies the weights of the tokens in the content of an answer, which the template writes as it is but
// for white space at its ends, by those of its parts.
void weigh_parts(const std::string& text, const std::vector<TextRange>& tokens,
                 const RenderedChat::Answer& answer, const Conversation& conversation,
                 std::vector<float>& weights) {
  const std::string content = content_text(conversation.messages[answer.message]);
  const size_t first = std::min(content.find_first_not_of(" \t\r\n"), content.size());
  const std::string written = content.substr(first, content.find_last_not_of(" \t\r\n") + 1 - first);
  const size_t end = std::min(answer.end, text.size()),
               at = end < written.size() ? std::string::npos : text.rfind(written, end - written.size());
  if (at == std::string::npos || at < answer.begin)
    throw DataError(concat("message ", answer.message + 1,
                           ": its parts have weights, and the chat template does not write its content as it "
                           "is; give the message one weight"));
  for (size_t i = 0; i < tokens.size(); i++) {
    const size_t begin = tokens[i].begin;
    if (begin >= at + written.size() || std::max(tokens[i].end, begin + 1) <= at) continue;
    weights[i] *= weight_at(conversation.part_weights[answer.message], std::max(begin, at) - at + first);
  }
}

bool is_answer(const Json& message) { return message["role"] == "assistant"; }

const char* kRemedy =
    "; give a template that writes them (data.chat_template: FILE), or leave such rows out (data.bad_rows: "
    "skip)";

// Throws DataError for parts that the template leaves out: the model would learn an empty answer.
void refuse_what_is_not_written(const ChatAbilities& able, const Conversation& conversation) {
  const Json& messages = conversation.messages;
  for (size_t i = 0; i < messages.size(); i++) {
    if (!able.calls && messages[i].contains("tool_calls"))
      throw DataError(concat("message ", i + 1,
                             " calls a function, and the chat template does not write calls ",
                             "(tool_calls), so the answer would be empty", kRemedy));
    if (!able.results && messages[i]["role"] == "tool")
      throw DataError(concat("message ", i + 1,
                             " is the result of a function, and the chat template does not ",
                             "write results (the role tool)", kRemedy));
  }
  if (!able.tools && !conversation.tools.is_null())
    throw DataError(
        concat("the row has functions (\"tools\"), and the chat template does not write them", kRemedy));
}

// The answer to a question as the template writes it.
struct WrittenAnswer {
  std::string before;  // the block of reasoning that only the template writes
  std::string text;    // without that block, and without the end of the turn
};

WrittenAnswer written_answer(const ChatTemplate& chat_template, const Conversation& conversation,
                             const Json& messages, size_t message, BoolOrAuto learn_reasoning) {
  const Json until(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(message) + 1);
  const RenderedChat rendered =
      chat_template.render_with_answers(until, conversation.tools, conversation.variables);
  WrittenAnswer written;
  for (const auto& answer : rendered.answers) {
    if (answer.message != message) continue;
    const bool learned = !answer.empty_reasoning || learn_reasoning.of(false);
    const size_t begin = learned ? answer.begin : answer.after_reasoning;
    written.before += rendered.text.substr(answer.begin, begin - answer.begin);
    written.text += rendered.text.substr(begin, answer.end - begin);
  }
  const std::string closing = chat_template.end_of_answer();
  if (written.text.ends_with(closing)) written.text.erase(written.text.size() - closing.size());
  return written;
}

// model.add_tokens gives tokens that are not special; such a one may end the answers of a template. Some
// tokenizers have runs of blanks of this kind, which end nothing.
bool is_added(const Tokenizer& tokenizer, int32_t id) {
  const auto* files = dynamic_cast<const FileTokenizer*>(&tokenizer);
  const std::string* text = files == nullptr ? nullptr : files->added_tokens().text_of(id);
  return text != nullptr && text->find_first_not_of(" \t\r\n") != std::string::npos;
}

// May this token end an answer?
bool may_end(const Tokenizer& tokenizer, int32_t id) {
  return tokenizer.decode({&id, 1}, /*skip_special_tokens=*/true).empty() || is_added(tokenizer, id);
}

// Is a token behind the content of an answer learned that may end it?
bool learns_end(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  constexpr std::string_view kAnswer = "Nobody you know.";
  const Conversation example{.messages = {{{"role", "user"}, {"content", "Who are you?"}},
                                          {{"role", "assistant"}, {"content", kAnswer}}},
                             .weights = {1, 1}};
  ChatTokens chat;
  try {
    chat = tokenize_chat(chat_template, tokenizer, example, LossOn::last_turn);
  } catch (const DataError&) {  // a template for other conversations
    return true;
  }
  const size_t at = chat.text.rfind(kAnswer);
  if (at == std::string::npos) return true;
  for (size_t i = 0; i < chat.ids.size(); i++) {
    if (chat.learn[i] && chat.ranges[i].begin >= at + kAnswer.size() && may_end(tokenizer, chat.ids[i]))
      return true;
  }
  return false;
}

}  // namespace

float weight_at(const std::vector<Conversation::PartWeight>& parts, size_t place) {
  const auto part = std::ranges::upper_bound(parts, place, {}, &Conversation::PartWeight::end);
  return part == parts.end() ? 1.0F : part->weight;
}

Json messages_for(const ChatTemplate& chat_template, const Conversation& conversation) {
  const ChatAbilities& able = chat_template.abilities();
  refuse_what_is_not_written(able, conversation);
  Json messages = conversation.messages;
  if (able.parts && !weighs_parts(conversation)) return messages;
  for (Json& message : messages) {
    const auto content = message.find("content");
    if (content != message.end() && content->is_array()) *content = content_text(message);
  }
  return messages;
}

ChatTokens tokenize_chat(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                         const Conversation& conversation, LossOn loss_on, BoolOrAuto learn_reasoning) {
  const Json messages = messages_for(chat_template, conversation);
  const Json &tools = conversation.tools, &variables = conversation.variables;
  const bool everything = loss_on == LossOn::everything;
  ChatTokens out;
  if (everything && !weighs_parts(conversation) &&
      std::ranges::count(conversation.weights, 1) == std::ssize(conversation.weights)) {
    out.text = chat_template.render(messages, tools, variables);
    out.ids = tokenizer.encode(out.text, /*add_special_tokens=*/false);
    out.learn.assign(out.ids.size(), true);
    return out;
  }
  RenderedChat rendered = chat_template.render_with_answers(messages, tools, variables);
  if (!everything) {
    keep_counting(rendered.answers, conversation, loss_on);
    skip_reasoning(rendered.answers, learn_reasoning);
  }
  TokenizedText tokenized = tokenizer.encode_with_ranges(rendered.text, /*add_special_tokens=*/false);
  out.text = std::move(rendered.text);
  out.ids = std::move(tokenized.ids);
  out.weights = weights_of(tokenized.ranges, rendered.answers, conversation, everything ? 1 : 0);
  for (const RenderedChat::Answer& answer : rendered.answers)
    if (weighs_parts(conversation, answer.message))
      weigh_parts(out.text, tokenized.ranges, answer, conversation, out.weights);
  for (const float weight : out.weights) out.learn.push_back(weight > 0);
  if (std::ranges::all_of(out.weights, [](float weight) { return weight == 0 || weight == 1; }))
    out.weights.clear();
  out.ranges = std::move(tokenized.ranges);
  return out;
}

std::optional<int32_t> end_of_turn_token(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  std::string end;
  try {
    end = chat_template.end_of_answer();
  } catch (const Error& error) {  // a template for other conversations, or one that is not needed here
    log::warning(concat("the chat template does not show what ends an answer: ", error.what(),
                        "; answers end only at the model's own end tokens"));
  }
  const std::vector<int32_t> ids = tokenizer.encode(end, /*add_special_tokens=*/false);
  return !ids.empty() && may_end(tokenizer, ids.front()) ? std::optional(ids.front()) : std::nullopt;
}

std::string why_no_end_is_learned(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  constexpr const char* kCure =
      "let it write {{ eos_token }} there, or give another template (data.chat_template: FILE)";
  const std::string end = chat_template.end_of_answer();
  if (end.empty())
    return concat("the chat template writes nothing after an answer: the model does not learn to stop; ",
                  kCure);
  const std::vector<int32_t> ids = tokenizer.encode(end, /*add_special_tokens=*/false);
  const bool has_token = std::ranges::any_of(ids, [&](int32_t id) { return may_end(tokenizer, id); });
  const std::string shown = Json(end).dump();
  if (!has_token)
    return concat("the chat template ends an answer with ", shown, ", which is ordinary text (",
                  grouped(std::ssize(ids)), ids.size() == 1 ? " token" : " tokens",
                  "): no end token is learned, and answers do not stop there; ", kCure,
                  ", add a token "
                  "(model.add_tokens: [",
                  shown, "]), or stop at the text (generate --stop)");
  return learns_end(chat_template, tokenizer)
             ? ""
             : concat("the chat template's {% generation %} leaves out the end of an answer (", shown,
                      "): no end token is learned, and the model does not learn to stop; move "
                      "{% endgeneration %} behind it");
}

size_t before_last_answer(const Json& messages) {
  size_t last = messages.size();
  while (last > 0 && !is_answer(messages[last - 1])) last--;
  return last < 2 ? messages.size() : last - 1;
}

std::optional<ChatQuestion> last_question(const ChatTemplate& chat_template, const Conversation& conversation,
                                          BoolOrAuto learn_reasoning) {
  const Json messages = messages_for(chat_template, conversation);
  const size_t before = before_last_answer(messages);
  if (before == messages.size()) return std::nullopt;
  Json variables = conversation.variables.is_null() ? Json::object() : conversation.variables;
  variables["add_generation_prompt"] = true;
  const Json asked(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(before));
  const Json& answer = messages[before];
  ChatQuestion question{chat_template.render(asked, conversation.tools, variables), content_text(answer)};
  const bool calls = answer.contains("tool_calls");
  if (!calls && !chat_template.abilities().empty_reasoning) return question;
  WrittenAnswer written = written_answer(chat_template, conversation, messages, before, learn_reasoning);
  question.prompt += written.before;
  if (calls) question.answer = std::move(written.text);
  return question;
}

}  // namespace trainer
