#include "commands/prompts.h"

#include <algorithm>
#include <fstream>
#include <iostream>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"
#include "trainer/text/conversation.h"

#include "base/not_text.h"
#include "base/text.h"
#include "base/utf8.h"
#include "commands/rows.h"
#include "data/fields.h"
#include "data/row_parser.h"
#include "formats/json_lines.h"
#include "formats/json_problem.h"
#include "text/tokenizer/json_reader.h"

namespace trainer {
namespace {

// Fields that hold the prompt, in the order they are looked for.
constexpr const char* kPromptFields[] = {"input", "source", "prompt", "instruction", "question", "text"};

std::vector<PlacedRow> read_rows(std::istream& in, const std::string& name) {
  std::vector<PlacedRow> rows;
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    number++;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (const std::string other = number == 1 ? not_text(line) : ""; !other.empty())
      throw DataError(concat(name, ": ", other));
    PlacedRow placed{.row = {}, .where = concat(name, ":", number)};
    placed.row = parsed_row(line, placed.where, in.eof());
    rows.push_back(std::move(placed));
  }
  if (rows.empty()) throw DataError(concat(name, ": has no rows"));
  return rows;
}

}  // namespace

Row parsed_row(const std::string& line, const std::string& where, bool ends_file) {
  const auto refuse = [&](std::string_view what) { throw DataError(concat(where, ": ", what)); };
  if (nested_too_deep(line)) refuse("is nested too deep");
  Row row = Row::parse(line, nullptr, /*allow_exceptions=*/false);
  if (row.is_discarded() && line.starts_with('{')) {
    const std::string problem = json_problem(line, ends_file ? JsonEnd::file : JsonEnd::line);
    if (!problem.empty()) refuse("malformed JSON: " + problem);
    if (valid_utf8_prefix(line) < line.size()) refuse("is not UTF-8; save the file as UTF-8");
    if (const auto number = number_beyond_64_bits(line))
      refuse(concat("has the number ", one_line(*number, 40),
                    ", which does not fit in 64 bits; write it as a string, in quotes"));
  }
  if (!row.is_object()) refuse("is not a JSON object");
  return row;
}

std::vector<PlacedRow> read_rows(const std::string& file, const std::string& cache) {
  if (file == "-") return read_rows(std::cin, "stdin");
  if (!is_json_lines(file)) {
    std::vector<PlacedRow> rows;
    for_each_row(file, cache, [&](const std::string& json, const std::string& where) {
      rows.push_back({with_parsed_lists(Row::parse(json)), where});  // lists in a table are text
    });
    if (rows.empty()) throw DataError(concat(file, ": has no rows"));
    return rows;
  }
  std::ifstream in(file);
  if (!in) throw DataError(concat(file, ": cannot be read"));
  return read_rows(in, file);
}

PromptEncoder::PromptEncoder(const Tokenizer& tokenizer, const std::string& model,
                             const GenerateOptions& options)
    : tokenizer_(tokenizer), model_(model), options_(options), template_(load_chat_template(model)) {
  if (!options.data.chat_template.empty())  // of a run whose result is not written yet
    template_ = read_chat_template(options.data.chat_template, model);
  if (template_ && !options.data.template_date.empty()) template_->set_date(options.data.template_date);
  if (options.chat) chat_template();
}

const ChatTemplate& PromptEncoder::chat_template() const {
  if (template_) return *template_;
  throw FormatError(concat(model_,
                           ": has no chat template, neither chat_template.jinja nor chat_template in "
                           "tokenizer_config.json; put that of the model's instruct version there, or give "
                           "prompts without --chat and `messages`"));
}

std::vector<int32_t> PromptEncoder::encode(const std::string& prompt) const {
  if (options_.chat) {
    Row messages = opening();
    messages.push_back({{"role", "user"}, {"content", prompt}});
    return encode_messages(messages);
  }
  std::vector<int32_t> ids = tokenizer_.encode(prompt, /*add_special_tokens=*/true);
  if (ids.empty()) throw DataError("an empty prompt has no token to start from");
  return ids;
}

std::vector<int32_t> PromptEncoder::encode(const PlacedRow& placed) const {
  try {
    const Row& row = placed.row;
    const bool is_list = row.contains("prompt") && row["prompt"].is_array();  // as TRL has it
    if (is_list && !row.contains("messages")) return encode_messages(to_answer(row["prompt"]));
    const auto form = form_of(row);
    return form ? encode_conversation(row, *form) : encode(prompt_of(row));
  } catch (const DataError& e) {
    throw DataError(concat(placed.where, ": ", e.what()));
  }
}

// A row of a run may lack the answer that its training data had.
std::optional<ConversationForm> PromptEncoder::form_of(const Row& row) const {
  std::vector<std::string> names;
  for (const auto& [name, value] : row.items()) names.push_back(name);
  const DataConfig& data = options_.data;
  const bool of_chats =
      options_.of_run && template_ &&
      (data.kind == DataKind::chat || (data.kind == DataKind::automatic && data.input.empty()));
  if (of_chats) names.emplace_back("output");
  const auto form = conversation_form(names);
  const bool has_own_fields = !data.input.empty() && data.kind != DataKind::chat && !row.contains("messages");
  if (!form || has_own_fields || (*form == ConversationForm::alpaca && !of_chats)) return std::nullopt;
  return form;
}

std::vector<int32_t> PromptEncoder::encode_conversation(Row row, ConversationForm form) const {
  if (form == ConversationForm::messages && (!row["messages"].is_array() || row["messages"].empty()))
    throw DataError("messages: must be a list of messages");
  if (form == ConversationForm::alpaca) row["output"] = "";
  const Conversation conversation = read_conversation(row, form);
  Row variables = conversation.variables.is_null() ? Row::object() : conversation.variables;
  variables["add_generation_prompt"] = true;
  const std::string text =
      chat_template().render(to_answer(conversation.messages), conversation.tools, variables);
  return tokenizer_.encode(text, /*add_special_tokens=*/false);
}

bool PromptEncoder::is_conversation(const Row& row) const {
  const bool is_list = row.contains("prompt") && row["prompt"].is_array();
  return options_.chat || is_list || form_of(row).has_value();
}

std::string PromptEncoder::input_of(const PlacedRow& placed) const {
  if (is_conversation(placed.row)) return "";
  if (!options_.data.input.empty()) return options_.data.input;
  for (const char* field : kPromptFields)
    if (placed.row.contains(field)) return field;
  return "";
}

Row PromptEncoder::answered(const PlacedRow& placed, const std::string& answer) const {
  Row row = placed.row;
  if (!is_conversation(row)) return row;
  Row messages;
  if (row.contains("prompt") && row["prompt"].is_array() && !row.contains("messages")) {
    messages = to_answer(row["prompt"]);
  } else if (const auto form = form_of(row)) {
    if (*form == ConversationForm::alpaca) row["output"] = "";
    messages = to_answer(read_conversation(row, *form).messages);
  } else {
    messages = opening();
    messages.push_back({{"role", "user"}, {"content", prompt_of(row)}});
  }
  messages.push_back({{"role", "assistant"}, {"content", answer}});
  for (const char* field : {"prompt", "completion", "conversations", "output"}) row.erase(field);
  row["messages"] = std::move(messages);
  return row;
}

std::string PromptEncoder::prompt_of(const Row& row) const {
  if (!options_.data.input.empty()) {
    const TextTemplate input = TextTemplate::parse(options_.data.input, "data.input");
    const bool has_all =
        std::ranges::all_of(input.fields(), [&](const auto& name) { return row.contains(name); });
    // A row may also hold a prompt as it stands.
    if (has_all || !row.contains("prompt")) {
      RowParser parser;
      const std::string json = row.dump();
      parser.parse(json, 0);
      return input.apply(parser);
    }
  }
  for (const char* field : kPromptFields) {
    if (!row.contains(field)) continue;
    if (!row[field].is_string()) throw DataError(concat("field '", field, "' is not a string"));
    return row[field];
  }
  throw DataError("has none of the fields messages, input, source, prompt, instruction, question, text");
}

// Returns the messages with the system message first, and without an answer at the end.
Row PromptEncoder::to_answer(Row messages) const {
  if (!messages.is_array() || messages.empty()) throw DataError("messages: must be a list of messages");
  const auto role = [](const Row& message) {
    return message.is_object() && message.contains("role") ? message["role"] : Row();
  };
  if (role(messages.back()) == "assistant") messages.erase(messages.size() - 1);
  if (options_.system.empty() || (!messages.empty() && role(messages.front()) == "system")) return messages;
  Row opened = opening();
  opened.insert(opened.end(), messages.begin(), messages.end());
  return opened;
}

std::vector<int32_t> PromptEncoder::encode_messages(const Row& messages) const {
  const std::string text = chat_template().render(messages, nullptr, {{"add_generation_prompt", true}});
  return tokenizer_.encode(text, /*add_special_tokens=*/false);
}

Row PromptEncoder::opening() const {
  Row messages = Row::array();
  if (!options_.system.empty()) messages.push_back({{"role", "system"}, {"content", options_.system}});
  return messages;
}

std::optional<int32_t> PromptEncoder::end_of_turn() const {
  return template_ ? end_of_turn_token(*template_, tokenizer_) : std::nullopt;
}

void PromptEncoder::warn_of_two_begins(const std::vector<std::vector<int32_t>>& prompts) const {
  const std::vector<int32_t> with = tokenizer_.encode("a", true), without = tokenizer_.encode("a", false);
  if (with.empty() || without.empty() || with.front() == without.front()) return;
  const auto begins_twice = [&](const std::vector<int32_t>& ids) {
    return ids.size() > 1 && ids[0] == with.front() && ids[1] == with.front();
  };
  const auto count = std::ranges::count_if(prompts, begins_twice);
  if (count > 0)
    log::warning(
        concat(count == 1 ? "a prompt begins" : concat(count, " prompts begin"),
               " with the token that the tokenizer adds (BOS), which then stands there twice: leave it out"));
}

void warn_of_length(const Model& model, const std::vector<int32_t>& prompt, const std::string& what) {
  const int64_t positions =
      model.encoder_decoder() ? 0 : config_int(model.config(), "max_position_embeddings", 0);
  if (positions == 0 || static_cast<int64_t>(prompt.size()) < positions) return;
  log::warning(concat(what, " has ", prompt.size(), " tokens; the model was made for ", positions,
                      " positions (max_position_embeddings), so do not expect a sensible answer"));
}

}  // namespace trainer
