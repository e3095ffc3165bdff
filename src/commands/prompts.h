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
#include "trainer/text/tokenizer.h"

#include "run/run_model.h"

namespace trainer {

using Row = nlohmann::ordered_json;

struct PlacedRow {
  Row row;
  std::string where;  // file:line
};
// Reads rows of JSON objects from a file, or from stdin with "-". Throws DataError when malformed or empty.
std::vector<PlacedRow> read_rows(const std::string& file);

// Prompts to token ids.
class PromptEncoder {
 public:
  // chat: texts are a user's messages. Throws FormatError when a template is needed and the model has none.
  PromptEncoder(const Tokenizer& tokenizer, const std::string& model, bool chat, const std::string& system);

  // Returns the ids of a prompt, as the tokenizer's default call gives them, or rendered by the chat
  // template. Throws DataError for a prompt without a token.
  std::vector<int32_t> encode(const std::string& prompt) const;
  // The same for a row with `messages`, or with a prompt in one of the usual fields. If the last message is
  // the answer, it is left out.
  std::vector<int32_t> encode(const PlacedRow& row) const;
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

  const Tokenizer& tokenizer_;
  std::string model_;
  std::optional<ChatTemplate> template_;
  bool chat_;
  std::string system_;
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
