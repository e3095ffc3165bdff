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
#include "base/utf8.h"
#include "formats/json_problem.h"
#include "text/tokenizer/json_reader.h"

namespace trainer {
namespace {

// Fields that hold the prompt, in the order they are looked for.
constexpr const char* kPromptFields[] = {"input", "source", "prompt", "instruction", "question", "text"};

std::string prompt_of(const Row& row) {
  for (const char* field : kPromptFields) {
    if (!row.contains(field)) continue;
    if (!row[field].is_string()) throw DataError(concat("field '", field, "' is not a string"));
    return row[field];
  }
  throw DataError("has none of the fields messages, input, source, prompt, instruction, question, text");
}

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
    if (number_beyond_64_bits(line)) refuse("has a number that is too large for 64 bits");
  }
  if (!row.is_object()) refuse("is not a JSON object");
  return row;
}

std::vector<PlacedRow> read_rows(const std::string& file) {
  if (file == "-") return read_rows(std::cin, "stdin");
  std::ifstream in(file);
  if (!in) throw DataError(concat(file, ": cannot be read"));
  return read_rows(in, file);
}

PromptEncoder::PromptEncoder(const Tokenizer& tokenizer, const std::string& model, bool chat,
                             const std::string& system)
    : tokenizer_(tokenizer),
      model_(model),
      template_(load_chat_template(model)),
      chat_(chat),
      system_(system) {
  if (chat) chat_template();
}

const ChatTemplate& PromptEncoder::chat_template() const {
  if (template_) return *template_;
  throw FormatError(concat(model_,
                           ": has no chat template, neither chat_template.jinja nor chat_template in "
                           "tokenizer_config.json; put that of the model's instruct version there, or give "
                           "prompts without --chat and `messages`"));
}

std::vector<int32_t> PromptEncoder::encode(const std::string& prompt) const {
  if (chat_) {
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
    if (row.contains("messages") || is_list)
      return encode_messages(to_answer(row[row.contains("messages") ? "messages" : "prompt"]));
    return encode(prompt_of(row));
  } catch (const DataError& e) {
    throw DataError(concat(placed.where, ": ", e.what()));
  }
}

// Returns the messages with the system message first, and without an answer at the end.
Row PromptEncoder::to_answer(Row messages) const {
  if (!messages.is_array() || messages.empty()) throw DataError("messages: must be a list of messages");
  const auto role = [](const Row& message) {
    return message.is_object() && message.contains("role") ? message["role"] : Row();
  };
  if (role(messages.back()) == "assistant") messages.erase(messages.size() - 1);
  if (system_.empty() || (!messages.empty() && role(messages.front()) == "system")) return messages;
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
  if (!system_.empty()) messages.push_back({{"role", "system"}, {"content", system_}});
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
