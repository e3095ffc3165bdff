#include "trainer/text/conversation.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "formats/json_file.h"
#include "text/chat/marks.h"
#include "text/chat/roles.h"
#include "text/chat/row_json.h"

namespace trainer {
namespace {

// Brings functions and their calls into the form that chat templates read: that of OpenAI, with the arguments
// as an object.

using Json = nlohmann::ordered_json;

Json framed(Json function) { return {{"type", "function"}, {"function", std::move(function)}}; }

// Templates write arguments with `tojson`, which would put a text in quotes once more.
void read_arguments(Json& function, const std::string& where) {
  const auto arguments = function.find("arguments");
  if (arguments == function.end() || !arguments->is_string()) return;
  const auto& text = arguments->get_ref<const std::string&>();
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
    *arguments = Json::object();
    return;
  }
  std::optional<Json> parsed = parsed_text(text, where);
  if (!parsed || !parsed->is_object())
    throw DataError(concat(where, ": the \"arguments\" of the call of ", function["name"].dump(),
                           " are a text that is not a JSON object", parsed ? "" : why_not_json(text)));
  *arguments = std::move(*parsed);
}

// Returns the calls of a list, each as {"type": "function", "function": {"name", "arguments"}}. Also reads
// calls without that frame, and arguments that are the text of a JSON object, as OpenAI writes them. Throws
// DataError that names the call.
Json tool_calls_of(Json calls, const std::string& where) {
  for (Json& call : calls) {
    if (!call.is_object()) throw DataError(concat(where, ": a call is ", type_text(call), ", no object"));
    if (!value_of(call, "function")) call = framed(std::move(call));
    Json& function = call["function"];
    if (!function.is_object() || !value_of(function, "name"))
      throw DataError(concat(where, ": a function_call without \"name\""));
    read_arguments(function, where);
  }
  return calls;
}

// Puts the calls of a message in place: `tool_calls` (a list or its JSON text), or OpenAI's earlier
// `function_call`; the role `function` becomes `tool`. Throws DataError.
void normalize_calls(Json& message, const std::string& where) {
  if (const Json* role = value_of(message, "role"); role && *role == "function") message["role"] = "tool";
  const Json* calls = value_of(message, "tool_calls");
  const Json* call = value_of(message, "function_call");
  Json found;
  if (calls) {
    found = list_of(*calls, concat(where, ": \"tool_calls\""));
  } else if (call) {
    found = Json::array({*call});
  }
  if (message.contains("function_call")) message.erase("function_call");
  if (found.empty()) {
    if (message.contains("tool_calls")) message.erase("tool_calls");
    return;
  }
  message["tool_calls"] = tool_calls_of(std::move(found), where);
}

// Returns the functions of `tools` (a list or its JSON text), each as {"type": "function", "function":
// {...}}; null if there are none. Throws DataError.
Json tools_of(const Json& tools, const std::string& name) {
  Json list = list_of(tools, name);
  if (list.empty()) return nullptr;
  for (Json& tool : list) {
    if (tool.is_string()) tool = parsed_text(tool, name).value_or(nullptr);
    if (!tool.is_object()) throw DataError(concat(name, ": a function is no JSON object"));
    if (!value_of(tool, "function") && value_of(tool, "name")) {
      if (tool.contains("type") && tool["type"] == "function") tool.erase("type");
      tool = framed(std::move(tool));
    }
  }
  return list;
}

void check_content(const Json& message, const std::string& where) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) {
    for (const char* instead : {"tool_calls", "reasoning_content", "thinking", "reasoning"}) {
      if (value_of(message, instead)) return;
    }
    if (content == message.end()) throw DataError(concat(where, " has no \"content\""));
    throw DataError(concat(where, ": \"content\" is null, and there are no \"tool_calls\""));
  }
  if (!content->is_string() && !content->is_array())
    throw DataError(concat(where, ": \"content\" is ", type_text(*content), ", not text or a list of parts"));
  if (content->is_array()) check_parts(*content, where);
}

void add(Conversation& out, Json message, const std::string& where) {
  out.weights.push_back(take_marks(message, where, out.unknown_marks));
  out.part_weights.push_back(take_marks_of_parts(message, where, out.unknown_marks));
  normalize_calls(message, where);
  check_content(message, where);
  out.messages.push_back(std::move(message));
}

Json said(const char* role, Json content) { return {{"role", role}, {"content", std::move(content)}}; }

// The text of a call {"name", "arguments"}, or of a list of them.
Json called(const std::string& text, const std::string& where) {
  Json calls = parsed_text(text, where).value_or(nullptr);
  if (calls.is_object()) calls = Json::array({std::move(calls)});
  if (!calls.is_array() || calls.empty())
    throw DataError(
        concat(where, ": the value of a function_call is not a JSON object {\"name\", \"arguments\"}"));
  return tool_calls_of(std::move(calls), where);
}

// {"from", "value"} as {"role", "content"}.
Json translated(const Json& message, const std::string& where) {
  const std::string from = required_text(message, "from", where);
  OrderedObject out;
  if (from == "function_call" || from == "tool_call") {
    out.set("role", "assistant");
    out.set("content", "");
    out.set("tool_calls", called(required_text(message, "value", where), where));
  } else {
    const std::string role = role_named(from);
    if (role != "user" && role != "assistant" && role != "system" && role != "tool") {
      throw DataError(concat(where, ": \"from\" is \"", from,
                             "\"; known are human, gpt, system, function_call, observation and tool"));
    }
    const char* text = message.contains("value") || !message.contains("content") ? "value" : "content";
    out.set("role", role);
    out.set("content", required_text(message, text, where));
  }
  for (const auto& [key, more] : message.items()) {
    if (key != "from" && key != "value" && key != "content") out.set(key, more);
  }
  return out.take();
}

// {"role", "content"} with the roles that templates know.
Json with_known_role(Json message, const std::string& role, const std::string& where) {
  const bool calls =
      role == "function_call" && value_of(message, "content") && !value_of(message, "tool_calls");
  if (calls) {
    message["tool_calls"] = called(required_text(message, "content", where), where);
    message["content"] = "";
    message["role"] = "assistant";
  } else if (const std::string known = role_named(role); known != role) {
    message["role"] = known;
  }
  if (!message.contains("content") && message.contains("value")) {
    message["content"] = message["value"];
    message.erase("value");
  }
  return message;
}

// named: the field is named with a message, because the row has several such lists.
void add_messages(Conversation& out, const Json& value, const char* field, bool named = false) {
  const std::string name = concat("\"", field, "\"");
  // In a table, it is the text of a list.
  const Json messages = value.is_string() ? parsed_text(value, name).value_or(nullptr) : value;
  if (!messages.is_array()) throw DataError(concat(name, " is ", type_text(value), ", not a list"));
  if (messages.empty()) throw DataError(concat(name, " is an empty list"));
  for (size_t i = 0; i < messages.size(); i++) {
    const std::string where = concat(named ? concat("\"", field, "\": ") : "", "message ", i + 1);
    const Json& message = messages[i];
    if (!message.is_object()) throw DataError(concat(where, " is ", type_text(message), ", not an object"));
    if (message.contains("from") && !value_of(message, "role")) {
      add(out, translated(message, where), where);
    } else {
      const std::string role = required_text(message, "role", where);
      add(out, with_known_role(message, role, where), concat(where, " (", role, ")"));
    }
  }
}

void add_alpaca(Conversation& out, const Json& row) {
  if (const Json* history = value_of(row, "history")) {
    if (!history->is_array()) throw DataError("\"history\" is not a list of pairs [question, answer]");
    for (const Json& pair : *history) {
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
        throw DataError("\"history\" is not a list of pairs [question, answer]");
      add(out, said("user", pair[0]), "history");
      add(out, said("assistant", pair[1]), "history");
    }
  }
  std::string question = required_text(row, "instruction", "the row");
  if (value_of(row, "input")) {
    const std::string input = required_text(row, "input", "the row");
    if (!input.empty()) question += (question.empty() ? "" : "\n") + input;
  }
  add(out, said("user", question), "the row");
  add(out, said("assistant", required_text(row, "output", "the row")), "the row");
}

bool is_message(const Json& value) {
  return value.is_object() && (value.contains("role") || value.contains("from"));
}
bool holds_messages(const Json& value) {
  return is_message(value) || (value.is_array() && !value.empty() && is_message(value.front()));
}

std::string kind_of(const Json& value) {
  if (value.is_string()) return "text";
  if (value.is_array()) return holds_messages(value) ? "a list of messages" : "a list";
  return value.is_object() ? "a message that is in no list" : type_text(value);
}

// The list of messages whose JSON text a field has. Such a text of Python is refused, because it would be
// learned as it is.
std::optional<Json> messages_in_text(const Json& record, const char* field) {
  const auto found = record.find(field);
  if (found == record.end() || !found->is_string()) return std::nullopt;
  const auto& text = found->get_ref<const std::string&>();
  const size_t first = text.find_first_not_of(" \t\r\n");
  const std::string_view begin = std::string_view(text).substr(std::min(first, text.size()));
  if (begin.starts_with("[{'role'") || begin.starts_with("[{'content'") || begin.starts_with("[{'from'"))
    throw DataError(concat("field \"", field,
                           "\" is a list of messages in the syntax of Python; "
                           "write it as JSON (json.dumps), or the rows as JSON lines"));
  if (!begin.starts_with("[")) return std::nullopt;
  std::optional<Json> list = parsed_text(text, concat("field \"", field, "\""));
  const bool is_list = list && holds_messages(*list) && std::ranges::all_of(*list, is_message);
  return is_list ? std::move(list) : std::nullopt;
}

// What is learned is the completion: its answers, each with the token that ends it.
void add_prompt_and_completion(Conversation& out, const Json& row, LossOn loss_on) {
  const auto prompt = row.find("prompt"), completion = row.find("completion");
  for (const char* field : {"prompt", "completion"}) {
    if (!row.contains(field)) throw DataError(concat("field \"", field, "\" is missing"));
  }
  if (!prompt->is_array() || !completion->is_array())
    throw DataError(concat("\"prompt\" is ", kind_of(*prompt), " and \"completion\" is ",
                           kind_of(*completion),
                           ": both must be lists of messages in all rows, or both texts in all rows"));
  add_messages(out, *prompt, "prompt", /*named=*/true);
  const size_t of_prompt = out.messages.size();
  add_messages(out, *completion, "completion", /*named=*/true);
  if (std::none_of(out.messages.begin() + static_cast<std::ptrdiff_t>(of_prompt), out.messages.end(),
                   [](const Json& message) { return message["role"] == "assistant"; }))
    throw DataError("\"completion\" has no message of the assistant, and only its answers are learned");
  if (loss_on != LossOn::everything)
    std::fill_n(out.weights.begin(), static_cast<std::ptrdiff_t>(of_prompt), 0.0F);
}

// Rows for models of texts and images have the files in a field of their own.
void refuse_images(const Json& row) {
  for (const char* field : {"image", "images", "video", "videos", "audio", "audios"}) {
    const Json* value = value_of(row, field);
    if (value == nullptr || value->empty() || *value == "") continue;
    throw DataError(
        concat("field \"", field, "\" is not empty, and only texts can be learned from, also with a ",
               "model of texts and images: leave such rows out (data.bad_rows: skip), or the field"));
  }
}

}  // namespace

std::optional<ConversationForm> conversation_form(const std::vector<std::string>& fields) {
  const auto has = [&](const char* name) { return std::ranges::find(fields, name) != fields.end(); };
  if (has("messages")) return ConversationForm::messages;
  if (has("conversations")) return ConversationForm::conversations;
  if (has("instruction") && has("output")) return ConversationForm::alpaca;
  return std::nullopt;
}

std::optional<ConversationForm> conversation_form(const Json& row) {
  std::vector<std::string> fields;
  for (const auto& field : row.items()) fields.push_back(field.key());
  if (const auto form = conversation_form(fields)) return form;
  const auto prompt = row.find("prompt"), completion = row.find("completion");
  if (prompt == row.end() || completion == row.end()) return std::nullopt;
  return holds_messages(*prompt) || holds_messages(*completion)
             ? std::optional(ConversationForm::prompt_completion)
             : std::nullopt;
}

Json with_parsed_lists(Json record) {
  for (const char* field : {"messages", "conversations", "chosen", "rejected"}) {
    if (auto list = messages_in_text(record, field)) record[field] = std::move(*list);
  }
  auto prompt = messages_in_text(record, "prompt"), completion = messages_in_text(record, "completion");
  const auto chosen = record.find("chosen");
  if (prompt && (completion || (chosen != record.end() && chosen->is_array()))) {
    record["prompt"] = std::move(*prompt);
    if (completion) record["completion"] = std::move(*completion);
  }
  return record;
}

Conversation read_conversation(const Json& row, ConversationForm form, LossOn loss_on) {
  refuse_images(row);
  Conversation out;
  out.messages = Json::array();
  const bool has_system = form == ConversationForm::conversations || form == ConversationForm::alpaca;
  if (has_system && value_of(row, "system")) {
    const std::string system = required_text(row, "system", "the row");
    if (!system.empty()) add(out, said("system", system), "the row");
  }
  if (form == ConversationForm::alpaca) {
    add_alpaca(out, row);
  } else if (form == ConversationForm::prompt_completion) {
    add_prompt_and_completion(out, row, loss_on);
  } else {
    const bool share_gpt = form == ConversationForm::conversations;
    const char* field = share_gpt ? "conversations" : "messages";
    const auto messages = row.find(field);
    if (messages == row.end()) throw DataError(concat("field \"", field, "\" is missing"));
    add_messages(out, *messages, field);
  }
  for (const char* key : {"tools", "functions"}) {
    const Json* tools = value_of(row, key);
    if (tools && out.tools.is_null()) out.tools = tools_of(*tools, concat("\"", key, "\""));
  }
  if (const Json* variables = value_of(row, "chat_template_kwargs")) {
    if (!variables->is_object())
      throw DataError(concat("\"chat_template_kwargs\" is ", type_text(*variables), ", not an object"));
    if (!variables->empty()) out.variables = *variables;
  }
  return out;
}

}  // namespace trainer
