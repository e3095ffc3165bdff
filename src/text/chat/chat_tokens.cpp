// Turns a conversation into ids, and finds which of them are learned.
#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/text/conversation.h"

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;

// The answers that count in the loss, in the order of the text.
void keep_counting(std::vector<RenderedChat::Answer>& answers, const Conversation& conversation,
                   LossOn loss_on) {
  size_t last = 0;
  for (const auto& answer : answers) last = std::max(last, answer.message);
  std::erase_if(answers, [&](const RenderedChat::Answer& answer) {
    return !conversation.learn[answer.message] || (loss_on == LossOn::last_turn && answer.message != last);
  });
}

// Both are in the order of the text. For a token with an empty range, its position counts.
std::vector<bool> in_answers(const std::vector<TextRange>& tokens,
                             const std::vector<RenderedChat::Answer>& answers) {
  std::vector<bool> learn(tokens.size(), false);
  size_t next = 0;
  for (size_t i = 0; i < tokens.size(); i++) {
    while (next < answers.size() && answers[next].end <= tokens[i].begin) next++;
    if (next == answers.size()) break;
    learn[i] = std::max(tokens[i].end, tokens[i].begin + 1) > answers[next].begin;
  }
  return learn;
}

bool is_answer(const Json& message) { return message["role"] == "assistant"; }

// The content as text. A list of parts is joined.
std::string content_of(const Json& message) {
  const auto content = message.find("content");
  if (content == message.end()) return "";
  if (content->is_string()) return *content;
  std::string text;
  for (const Json& part : *content) {
    if (part.is_object() && part.value("type", "") == "text") text += part.value("text", "");
  }
  return text;
}

}  // namespace

ChatTokens tokenize_chat(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                         const Conversation& conversation, LossOn loss_on) {
  const auto& [messages, tools, variables, learn] = conversation;
  const bool everything = loss_on == LossOn::everything;
  ChatTokens out;
  if (everything && !std::ranges::count(learn, false)) {
    out.text = chat_template.render(messages, tools, variables);
    out.ids = tokenizer.encode(out.text, /*add_special_tokens=*/false);
    out.learn.assign(out.ids.size(), true);
    return out;
  }
  RenderedChat rendered = chat_template.render_with_answers(messages, tools, variables);
  if (everything) {  // keeps the answers that are not learned
    std::erase_if(rendered.answers,
                  [&](const RenderedChat::Answer& answer) { return conversation.learn[answer.message]; });
  } else {
    keep_counting(rendered.answers, conversation, loss_on);
  }
  TokenizedText tokenized = tokenizer.encode_with_ranges(rendered.text, /*add_special_tokens=*/false);
  out.text = std::move(rendered.text);
  out.ids = std::move(tokenized.ids);
  out.learn = in_answers(tokenized.ranges, rendered.answers);
  if (everything) out.learn.flip();
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
  if (ids.empty() || !tokenizer.decode({ids.data(), 1}, /*skip_special_tokens=*/true).empty())
    return std::nullopt;
  return ids.front();
}

size_t before_last_answer(const Json& messages) {
  size_t last = messages.size();
  while (last > 0 && !is_answer(messages[last - 1])) last--;
  return last < 2 ? messages.size() : last - 1;
}

std::optional<ChatQuestion> last_question(const ChatTemplate& chat_template,
                                          const Conversation& conversation) {
  const Json& messages = conversation.messages;
  const size_t before = before_last_answer(messages);
  if (before == messages.size()) return std::nullopt;
  Json variables = conversation.variables.is_null() ? Json::object() : conversation.variables;
  variables["add_generation_prompt"] = true;
  const Json asked(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(before));
  return ChatQuestion{chat_template.render(asked, conversation.tools, variables),
                      content_of(messages[before])};
}

}  // namespace trainer
