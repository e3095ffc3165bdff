#include "data/answers_rows.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/text.h"
#include "base/utf8.h"
#include "text/chat/row_json.h"

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;

bool is_blank_text(const Json& value) {
  return value.is_string() &&
         value.get_ref<const std::string&>().find_first_not_of(" \t\r\n") == std::string::npos;
}

std::vector<std::string> fields_of(const Json& row) {
  std::vector<std::string> names;
  for (const auto& field : row.items()) names.push_back(field.key());
  return names;
}

// A message that says nothing and calls nothing.
bool is_silent(const Json& message) {
  if (!message.is_object()) return false;  // read_conversation() says what is wrong with it
  for (const char* key : {"tool_calls", "function_call", "reasoning_content", "thinking", "reasoning"})
    if (value_of(message, key)) return false;
  const Json* content = value_of(message, message.contains("from") ? "value" : "content");
  return content == nullptr || is_blank_text(*content);
}

// The field of an answer, checked: a text, a message or a list of messages that says something.
const Json& answer_in(const Json& row, const char* name) {
  const Json* answer = value_of(row, name);
  if (answer == nullptr)
    throw DataError(
        concat("field \"", name, "\" is missing or null; the row has ", join_some(fields_of(row))));
  const bool list = answer->is_array(), message = answer->is_object();
  if (!list && !message && !answer->is_string())
    throw DataError(concat("field \"", name, "\" is ", answer->type_name(),
                           ", not a text, a message or a list of messages"));
  if (is_blank_text(*answer) || (list && (answer->empty() || is_silent(answer->back()))) ||
      (message && is_silent(*answer)))
    throw DataError(concat("\"", name, "\" is empty"));
  return *answer;
}

Json as_list(const Json& messages) {
  if (messages.is_array()) return messages;
  return Json::array({messages});
}

bool says_gpt(const Json& messages) {
  return std::ranges::any_of(messages, [](const Json& m) { return m.is_object() && m.contains("from"); });
}

std::string speaker_of(const Json& message) {
  if (!message.is_object()) return "";
  for (const char* key : {"role", "from"}) {
    const Json* said = value_of(message, key);
    if (said != nullptr && said->is_string()) return said->get<std::string>();
  }
  return "";
}

bool is_answer(const Json& message) {
  static constexpr std::array<std::string_view, 7> kNames{"assistant", "gpt",           "chatgpt",  "bot",
                                                          "model",     "function_call", "tool_call"};
  return std::ranges::find(kNames, speaker_of(message)) != kNames.end();
}

// The conversation of a prompt and one side. Only what the side says counts in the loss.
Conversation conversation_of(const Json& row, const Json& prompt, const Json& side) {
  Json all = prompt;
  all.insert(all.end(), side.begin(), side.end());
  const bool gpt = says_gpt(all);
  Json made{{gpt ? "conversations" : "messages", std::move(all)}};
  for (const char* key : {"tools", "functions", "chat_template_kwargs", "system"})
    if (const Json* value = value_of(row, key)) made[key] = *value;
  Conversation conversation =
      read_conversation(made, gpt ? ConversationForm::conversations : ConversationForm::messages);
  const size_t before = conversation.weights.size() - side.size();
  std::fill_n(conversation.weights.begin(), before, 0.0f);
  return conversation;
}

// Returns how many messages the sides share at their beginning; of equal sides, all but the last.
size_t shared_messages(const std::vector<Json>& sides) {
  size_t shared = 0;
  const size_t least = std::min(sides[0].size(), sides[1].size());
  while (shared < least && sides[0][shared] == sides[1][shared]) shared++;
  return std::min(shared, least - 1);
}

class Reader {
 public:
  Reader(const Json& row, std::vector<const char*> names, AnswersRow& out)
      : row_(row), names_(std::move(names)), out_(out) {}

  void read() {
    std::vector<Json> sides;
    for (const char* name : names_) sides.push_back(answer_in(row_, name));
    const bool texts = std::ranges::all_of(sides, [](const Json& side) { return side.is_string(); });
    if (!texts && std::ranges::any_of(sides, [](const Json& side) { return side.is_string(); }))
      throw DataError(concat("\"", join(std::vector<std::string>(names_.begin(), names_.end()), "\" and \""),
                             "\" are a text and a list of messages; both must be the same"));
    texts ? read_texts(sides) : read_messages(std::move(sides));
  }

 private:
  const Json* list(const char* name) const {
    const Json* value = value_of(row_, name);
    return value != nullptr && value->is_array() ? value : nullptr;
  }
  const Json* text(const char* name) const {
    const Json* value = value_of(row_, name);
    return value != nullptr && value->is_string() ? value : nullptr;
  }

  void read_texts(const std::vector<Json>& sides) {
    if (const Json* prompt = prompt_messages()) return read_answers_to(*prompt, sides);
    const Json* system = text("system");
    const bool with_system = system != nullptr && !is_blank_text(*system);
    if (const Json* prompt = text("prompt"); prompt != nullptr && !with_system) {
      out_.prompt = *prompt;
      for (const Json& side : sides) out_.answers.push_back(side);
      return;
    }
    for (const char* name : {"prompt", "instruction", "question", "input"}) {
      if (const Json* question = text(name))
        return read_alpaca(*question, std::string_view(name) == "instruction", sides);
    }
    if (row_.contains("prompt")) throw DataError("field \"prompt\" is not a text or a list of messages");
    if (sides.size() < 2)
      throw DataError(concat("no field with the prompt: the row has ", join_some(fields_of(row_)),
                             "; write it as \"prompt\""));
    split_texts(sides[0], sides[1]);
  }

  // The texts of both sides begin with the prompt.
  void split_texts(const std::string& chosen, const std::string& rejected) {
    constexpr std::string_view kHuman = "\n\nHuman:", kAssistant = "\n\nAssistant:";
    size_t end = 0;
    if (chosen.starts_with(kHuman) && rejected.starts_with(kHuman)) {
      end = chosen.rfind(kAssistant);
      end = end == std::string::npos ? 0 : end + kAssistant.size();
      if (end == 0 || rejected.rfind(kAssistant) + kAssistant.size() != end)
        throw DataError("the prompts of the two sides differ: the last \"Assistant:\" is at other places");
    } else {
      const size_t least = std::min(chosen.size(), rejected.size());
      while (end < least && chosen[end] == rejected[end]) end++;
      while (end > 0 && (static_cast<unsigned char>(chosen[end]) & 0xc0) == 0x80)
        end--;  // inside a character
      if (end > 0 && chosen[end - 1] == ' ') end--;
      if (end == chosen.size() || end == rejected.size()) end = 0;
    }
    if (end == 0 || chosen.compare(0, end, rejected, 0, end) != 0)
      throw DataError("the prompts of the two sides differ, and there is no field \"prompt\"");
    out_.prompt = chosen.substr(0, end);
    for (const std::string& side : {chosen, rejected}) {
      if (is_blank_text(side.substr(end)))
        throw DataError(concat("\"", names_[out_.answers.size()], "\" is empty after the prompt"));
      out_.answers.push_back(side.substr(end));
    }
  }

  void read_answers_to(const Json& prompt, const std::vector<Json>& sides) {
    for (const Json& side : sides) {
      const bool gpt = says_gpt(prompt);
      const Json said =
          gpt ? Json{{"from", "gpt"}, {"value", side}} : Json{{"role", "assistant"}, {"content", side}};
      add(prompt, Json::array({said}));
    }
  }

  void read_alpaca(const std::string& question, bool with_input, const std::vector<Json>& sides) {
    out_.form = ConversationForm::alpaca;
    for (const Json& side : sides) {
      Json made{{"instruction", question}, {"output", side}};
      for (const char* key : {"input", "system", "history", "tools", "chat_template_kwargs"}) {
        const Json* value = value_of(row_, key);
        if (value != nullptr && (with_input || std::string_view(key) != "input")) made[key] = *value;
      }
      Conversation conversation = read_conversation(made, ConversationForm::alpaca);
      std::fill(conversation.weights.begin(), conversation.weights.end() - 1, 0.0f);
      out_.conversations.push_back(std::move(conversation));
    }
  }

  void read_messages(std::vector<Json> sides) {
    for (Json& side : sides) side = as_list(side);
    const bool answers = std::ranges::all_of(sides, [](const Json& side) { return is_answer(side.front()); });
    if (answers) {
      if (const Json* prompt = prompt_messages()) {
        for (const Json& side : sides) add(*prompt, side);
        return;
      }
      if (const Json* prompt = text("prompt")) {
        for (const Json& side : sides) add(Json::array({{{"role", "user"}, {"content", *prompt}}}), side);
        return;
      }
      throw DataError("the messages of the answers have no question before them, and there is no \"prompt\"");
    }
    split_messages(sides);
  }

  // Of UltraFeedback's rows, whose prompt is a text, the messages are those of the chosen answer.
  const Json* prompt_messages() const {
    if (const Json* prompt = list("prompt")) return prompt;
    if (text("prompt") != nullptr) return nullptr;
    const Json* messages = list("messages");
    return messages != nullptr ? messages : list("conversations");
  }

  // The messages of each side begin with the prompt.
  void split_messages(const std::vector<Json>& sides) {
    size_t end = sides.size() > 1 ? shared_messages(sides) : sides[0].size() - 1;
    while (end > 0 && sides.size() == 1 && is_answer(sides[0][end - 1])) end--;
    const Json prompt(
        std::vector<Json>(sides[0].begin(), sides[0].begin() + static_cast<std::ptrdiff_t>(end)));
    const Json* given = list("prompt");
    if (given != nullptr &&
        (given->size() > end || !std::equal(given->begin(), given->end(), prompt.begin())))
      throw DataError("the prompt differs: the sides do not begin with the messages of \"prompt\"");
    for (size_t i = 0; i < sides.size(); i++) {
      const Json side(std::vector<Json>(sides[i].begin() + static_cast<std::ptrdiff_t>(end), sides[i].end()));
      if (end == 0 || !is_answer(side.front()))
        throw DataError(concat("the prompts of the two sides differ: message ", end + 1, " of \"", names_[i],
                               "\" is no answer, and not the same on both sides"));
      add(prompt, side);
    }
  }

  void add(const Json& prompt, const Json& side) {
    out_.form = says_gpt(prompt) ? ConversationForm::conversations : ConversationForm::messages;
    out_.conversations.push_back(conversation_of(row_, prompt, side));
  }

  const Json& row_;
  std::vector<const char*> names_;
  AnswersRow& out_;
};

bool judgement_of(const Json& row) {
  for (const char* name : {"label", "kto_tag"}) {
    const Json* label = value_of(row, name);
    if (label == nullptr) continue;
    if (label->is_boolean()) return label->get<bool>();
    if (label->is_number_integer() && (*label == 0 || *label == 1)) return *label == 1;
    if (label->is_string()) {
      const std::string word = lower_case(label->get<std::string>());
      if (word == "true" || word == "1") return true;
      if (word == "false" || word == "0") return false;
    }
    throw DataError(
        concat("field \"", name, "\" is ", one_line(label->dump(), 40), "; it must be true or false"));
  }
  throw DataError(
      concat("field \"label\" (or \"kto_tag\") is missing; the row has ", join_some(fields_of(row))));
}

// The name of the answer that is judged; nullptr: it is the last of a conversation.
const char* judged_answer(const Json& row) {
  for (const char* name : {"completion", "output", "response"})
    if (row.contains(name)) return name;
  return nullptr;
}

// A conversation whose last answers are judged.
Conversation judged_conversation(const Json& row) {
  for (const char* name : {"messages", "conversations"}) {
    const Json* messages = value_of(row, name);
    if (messages == nullptr || !messages->is_array() || messages->empty()) continue;
    if (is_silent(messages->back())) throw DataError("the answer that is judged is empty");
    size_t end = messages->size();
    while (end > 0 && is_answer((*messages)[end - 1])) end--;
    if (end == 0 || end == messages->size())
      throw DataError("the conversation must end with the answer that is judged, after a question");
    const auto at = messages->begin() + static_cast<std::ptrdiff_t>(end);
    return conversation_of(row, std::vector<Json>(messages->begin(), at),
                           std::vector<Json>(at, messages->end()));
  }
  throw DataError(
      concat("no answer to judge: the row needs \"completion\", \"messages\" or \"output\", and has ",
             join_some(fields_of(row))));
}

}  // namespace

AnswersRow read_answers(const Json& row, DataKind kind) {
  AnswersRow out;
  if (kind == DataKind::preference) {
    const bool responses = !row.contains("chosen") && row.contains("chosen_response");
    if (!responses && !row.contains("chosen") && !row.contains("rejected"))
      throw DataError(concat("rows of preferences need \"chosen\" and \"rejected\"; the row has ",
                             join_some(fields_of(row))));
    std::vector<const char*> names{"chosen", "rejected"};
    if (responses) names = {"chosen_response", "rejected_response"};
    Reader(row, std::move(names), out).read();
    return out;
  }
  out.desirable = judgement_of(row);
  if (const char* name = judged_answer(row)) {
    Reader(row, {name}, out).read();
  } else {
    out.conversations.push_back(judged_conversation(row));
    out.form = row.contains("conversations") ? ConversationForm::conversations : ConversationForm::messages;
  }
  return out;
}

}  // namespace trainer
