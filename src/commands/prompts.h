// What `trainer generate` answers: prompts, rows of JSON, conversations.
#pragma once

#include <istream>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/text/chat_template.h"
#include "trainer/text/tokenizer.h"

namespace trainer {

using Row = nlohmann::ordered_json;

struct PlacedRow {
  Row row;
  std::string where;  // file:line
};
// Rows of JSON objects, in a file or, as "-", on stdin. Throws DataError: malformed, empty.
std::vector<PlacedRow> read_rows(const std::string& file);

// Prompts to token ids.
class PromptEncoder {
 public:
  // chat: texts are a user's messages. Throws FormatError where a template is needed and the model has none.
  PromptEncoder(const Tokenizer& tokenizer, const std::string& model, bool chat, const std::string& system);

  // The ids of a prompt: as the tokenizer's default call gives them, or rendered by the chat template.
  // Throws DataError for a prompt without a token.
  std::vector<int32_t> encode(const std::string& prompt) const;
  // Of a row with `messages` (their last answer, if it is there, is what is to be given, and left out), or a
  // prompt in one of the usual fields.
  std::vector<int32_t> encode(const PlacedRow& row) const;
  // Of a conversation that the model is to go on with. Special tokens are those of the template.
  std::vector<int32_t> encode_messages(const Row& messages) const;

  // The opening of a conversation: the system message, if there is one.
  Row opening() const;
  // The token that closes an answer in the chat template; none where that is text.
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

}  // namespace trainer
