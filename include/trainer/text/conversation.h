// Reads conversations in the forms that data sets use, and converts them to one form.
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
  nlohmann::ordered_json messages;         // objects with role, content and whatever else the template reads
  nlohmann::ordered_json tools = nullptr;  // JSON schemas, or null
  nlohmann::ordered_json variables = nullptr;
  std::vector<float> weights = {};  // weight of each message in the loss; 0: it is not learned

  // Of messages whose parts have weights of their own: where in the text of its content a part ends, in
  // bytes, and its weight. Empty: none has. Else one for each message.
  struct PartWeight {
    size_t end;
    float weight;
  };
  std::vector<std::vector<PartWeight>> part_weights = {};

  // A mark of another program on a message that cannot be obeyed.
  struct UnknownMark {
    std::string key, problem;  // the problem names the message, the key and its value
    bool of_question;          // asks to learn a message that is no answer
  };
  std::vector<UnknownMark> unknown_marks = {};
};

// The forms of a conversation in a row.
//   messages       [{"role", "content", ...}], as Hugging Face and OpenAI write it; roles by other names
//                  (human, gpt, bot, model, ai) and {"from", "value"} are understood. Contents are strings or
//                  lists of text parts; a content may be missing if there are tool_calls. Arguments of calls
//                  that are the text of an object become the object.
//   conversations  ShareGPT's [{"from", "value"}]: human and user, gpt and assistant, system, function_call
//                  (JSON of a call {"name", "arguments"}, or a list of them), observation and tool. Or
//                  messages as above. Both may be the JSON text of the list, as in a table.
//   alpaca         instruction, input, output (and system, history): the user says the instruction and, on
//                  the next line, the input if there is one; the assistant says the output.
//   prompt_completion  TRL's prompt and completion, both lists of messages as above: one conversation, of
//                  which only the answers in the completion are learned.
enum class ConversationForm { messages, conversations, alpaca, prompt_completion };

// Returns the form, which follows from the names of a row's fields; nullopt if the row holds no conversation.
// Of prompt and completion the names say nothing: conversation_form(row) finds them.
std::optional<ConversationForm> conversation_form(const std::vector<std::string>& fields);
// Returns the form of a row. A prompt or completion that is a list of messages makes it prompt_completion,
// also if the other is something else, which read_conversation() refuses.
std::optional<ConversationForm> conversation_form(const nlohmann::ordered_json& row);
// Returns the row of a table with the fields as lists that hold the JSON text of a conversation: messages,
// conversations, chosen and rejected, and prompt and what answers it if both are lists of messages. Throws
// DataError for lists in the syntax of Python.
nlohmann::ordered_json with_parsed_lists(nlohmann::ordered_json record);

// Besides the messages a row may have `tools` (a list, or its JSON text; bare functions get the frame
// {"type", "function"}), `system` (with conversations and Alpaca fields) and `chat_template_kwargs` (an
// object). A message may have a weight in the loss, which the template does not see: `weight` (or
// `loss_weight`), a number of 0 or more; or marks of other programs: `loss`, `train`, `training`, `trainable`
// or `loss_mask`, true or false, and `masked`, the opposite. A part of a content may have them, too. What
// else may be such a mark is put into `unknown_marks`: keys of a message that are true or false, and numbers
// and lists whose names tell of the loss. The messages of a prompt have the weight 0, except with
// LossOn::everything. Throws a DataError that names the message and what is wrong with it.
Conversation read_conversation(const nlohmann::ordered_json& row, ConversationForm form,
                               LossOn loss_on = LossOn::all_turns);

// Returns the weight of the part in which this byte of a content lies; 1 behind the last one.
float weight_at(const std::vector<Conversation::PartWeight>& parts, size_t place);

// Throws a DataError that names the first of the unknown marks. Marks that the template (nullptr: none) reads
// are something else, and with LossOn::everything questions are learned, too.
void refuse_unknown_marks(const Conversation& conversation, const ChatTemplate* chat_template,
                          LossOn loss_on);

// Returns the messages as the template reads them: where it reads only text, contents that are lists of parts
// are joined. Throws DataError, with the remedy, for functions, calls and results that it does not write.
nlohmann::ordered_json messages_for(const ChatTemplate& chat_template, const Conversation& conversation);

struct ChatTokens {
  std::string text;
  std::vector<int32_t> ids;       // no special tokens besides those that the template writes
  std::vector<bool> learn;        // whether each id is learned
  std::vector<float> weights;     // one for each id that is learned; empty: all are 1
  std::vector<TextRange> ranges;  // one for each id, in the text; empty when all ids are learned
};

// Returns a conversation's ids, and which of them are learned: those with at least one character in an answer
// that counts, as in Hugging Face's assistant masks. `loss_on` and the messages' weights decide which answers
// count. `learn_reasoning` decides whether their reasoning does, unless everything is learned or the template
// marks what is (data.learn_reasoning). Throws as messages_for() and ChatTemplate::render_with_answers() do.
ChatTokens tokenize_chat(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                         const Conversation& conversation, LossOn loss_on,
                         BoolOrAuto learn_reasoning = BoolOrAuto::automatic());

// Returns the special token that ends an answer in the chat template; nullopt if the end is ordinary text. If
// it cannot be found, logs a warning with the reason and returns nullopt.
std::optional<int32_t> end_of_turn_token(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

// Returns why a model that learns this template's answers learns no token at which generation could stop,
// and what to do; "" if it learns one. An example is rendered. Throws as ChatTemplate::end_of_answer() does.
std::string why_no_end_is_learned(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

// Returns the number of messages before the last answer, or of all messages if there is no answer or no
// question before it.
size_t before_last_answer(const nlohmann::ordered_json& messages);

// The prompt that the model gets for the conversation's last answer, and the content of that answer; for an
// answer that calls functions, the text that the template writes. An empty block of reasoning that is not
// learned is part of the prompt.
struct ChatQuestion {
  std::string prompt, answer;
};
// Returns nullopt if the conversation has no answer.
std::optional<ChatQuestion> last_question(const ChatTemplate& chat_template, const Conversation& conversation,
                                          BoolOrAuto learn_reasoning = BoolOrAuto::automatic());

}  // namespace trainer
