// Conversations as data sets write them, brought to one form.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/config/config.h"
#include "trainer/text/chat_template.h"
#include "trainer/text/tokenizer.h"

namespace trainer {

struct Conversation {
  nlohmann::ordered_json messages;         // objects with role and content, and what else the template reads
  nlohmann::ordered_json tools = nullptr;  // schemas, or null
  nlohmann::ordered_json variables = nullptr;
  std::vector<bool> learn;  // of each message: false where its `weight` is 0
};

// How a row holds a conversation.
//   messages       [{"role", "content", ...}], as Hugging Face and OpenAI write it. Contents are texts or
//   lists
//                  of parts; one may be missing where there are tool_calls.
//   conversations  ShareGPT's [{"from", "value"}]: human and user, gpt and assistant, system, function_call
//                  (JSON of a call {"name", "arguments"}, or a list of them), observation and tool. Or
//                  messages.
//   alpaca         instruction, input, output (and system, history): the user says the instruction and, in
//   the
//                  next line, the input if there is one; the assistant says the output.
enum class ConversationForm { messages, conversations, alpaca };

// By the names of a row's fields; none: it holds no conversation.
std::optional<ConversationForm> conversation_form(const std::vector<std::string>& fields);

// Beside the messages a row may have `tools` (a list, or the text of one), `system` (with conversations and
// Alpaca fields) and `chat_template_kwargs` (an object). A message may have `weight`, 0 or 1, which the
// template does not see. Throws DataError that names the message and what is wrong with it.
Conversation read_conversation(const nlohmann::ordered_json& row, ConversationForm form);

struct ChatTokens {
  std::string text;
  std::vector<int32_t> ids;       // of the text alone: special tokens are those that the template writes
  std::vector<bool> learn;        // of each id
  std::vector<TextRange> ranges;  // of each id, in the text; empty where all is learnt
};

// A conversation's ids, and which of them are learnt: all of which a character stands in an answer that
// counts, as in Hugging Face's assistant masks. `loss_on` and the messages' weights say which answers count.
// Throws as ChatTemplate::render_with_answers() does.
ChatTokens tokenize_chat(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                         const Conversation& conversation, LossOn loss_on);

// The token that closes an answer in the chat template; none where that is text.
std::optional<int32_t> end_of_turn_token(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

// How many messages stand before the last answer; all where nobody answers, or nobody asked.
size_t before_last_answer(const nlohmann::ordered_json& messages);

// The conversation before its last answer, as the model sees it when it is to give that, and the answer's
// content. None: nobody answers.
struct ChatQuestion {
  std::string prompt, answer;
};
std::optional<ChatQuestion> last_question(const ChatTemplate& chat_template,
                                          const Conversation& conversation);

}  // namespace trainer
