// The inputs of `trainer generate`: prompts, rows of JSON, conversations.
#pragma once

#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/generation/generate.h"
#include "trainer/models/model.h"
#include "trainer/text/chat_template.h"
#include "trainer/text/conversation.h"
#include "trainer/text/tokenizer.h"

#include "commands/options.h"
#include "run/run_model.h"

namespace trainer {

using Row = nlohmann::ordered_json;

struct PlacedRow {
  Row row;
  std::string where;  // file:line
};
// Returns the row of one line. Throws DataError, with the place `where`, for anything but a JSON object and
// for nesting that no copy survives. `ends_file`: nothing comes behind the line.
Row parsed_row(const std::string& line, const std::string& where, bool ends_file);

// Reads rows from a file of any kind that training reads, or lines of JSON from stdin with "-". `cache`: as
// data.cache. Throws DataError when malformed or empty.
std::vector<PlacedRow> read_rows(const std::string& file, const std::string& cache);

// Prompts to token ids.
class PromptEncoder {
 public:
  // options.chat: texts are a user's messages. Throws FormatError when a template is needed and the model has
  // none. `options` must outlive the encoder.
  PromptEncoder(const Tokenizer& tokenizer, const std::string& model, const GenerateOptions& options);

  // Returns the ids of a prompt, as the tokenizer's default call gives them, or rendered by the chat
  // template. Throws DataError for a prompt without a token.
  std::vector<int32_t> encode(const std::string& prompt) const;
  // The same for a row that holds a conversation, or a prompt in the fields that the run has learned from,
  // else in one of the usual fields. If the last message is the answer, it is left out.
  std::vector<int32_t> encode(const PlacedRow& row) const;
  // Returns the row with this answer as a row to learn from: of a conversation, `messages` end with it.
  Row answered(const PlacedRow& row, const std::string& answer) const;
  // Returns the field, or the template, that a row's prompt comes from; "" if it is a conversation.
  std::string input_of(const PlacedRow& row) const;
  // Returns whether the row is answered as a conversation.
  bool converses(const Row& row) const { return form_of(row).has_value(); }
  // The same for a conversation that the model is to continue. Special tokens are those of the template.
  std::vector<int32_t> encode_messages(const Row& messages) const;

  // Warns of prompts that have the token which the tokenizer adds in front (BOS) in their text, too.
  void warn_of_two_begins(const std::vector<std::vector<int32_t>>& prompts) const;

  // Returns whether the model has a chat template.
  bool has_template() const { return template_.has_value(); }
  // Returns the beginning of a conversation: the system message, if there is one.
  Row opening() const;
  // Returns the token that ends an answer in the chat template; nothing if plain text ends it.
  std::optional<int32_t> end_of_turn() const;

 private:
  const ChatTemplate& chat_template() const;
  Row to_answer(Row messages) const;
  std::optional<ConversationForm> form_of(const Row& row) const;
  std::vector<int32_t> encode_conversation(Row row, ConversationForm form) const;
  std::string prompt_of(const Row& row) const;
  bool is_conversation(const Row& row) const;

  const Tokenizer& tokenizer_;
  std::string model_;
  const GenerateOptions& options_;
  std::optional<ChatTemplate> template_;
};

// Warns of prompts that are longer than the model supports.

// Warns when a decoder's prompt leaves no position for an answer (max_position_embeddings of config.json).
void warn_of_length(const Model& model, const std::vector<int32_t>& prompt, const std::string& what);

// A conversation, turn by turn.

// Reads the user's messages from stdin, one per line, until the end or /exit, and answers each on stdout,
// token by token. On a terminal lines can be edited, Ctrl-C ends an answer, and an Error ends only the turn.
void chat(const OpenModel& opened, const PromptEncoder& encoder, const GenerationConfig& config,
          const std::vector<std::string>& stops, at::Device device);

// The same for programs: each line is {"messages": [...]}, a whole conversation, or a row with a prompt.
// Writes lines {"piece": "..."} as the answer comes, then {"answer": "..."}, or {"error": "..."}. SIGINT ends
// an answer.
void answer_json(const OpenModel& opened, const PromptEncoder& encoder, const GenerationConfig& config,
                 const std::vector<std::string>& stops, at::Device device);

}  // namespace trainer
