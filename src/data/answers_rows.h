// Reads rows whose answers are compared (a chosen and a rejected one) or judged, in the forms that data sets
// use.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/config/config.h"
#include "trainer/text/conversation.h"

#include "data/row_parser.h"

namespace trainer {

// A prompt and its answers: as texts, or as conversations in which only the answer counts.
struct AnswersRow {
  std::string prompt;
  std::vector<std::string> answers;         // chosen, rejected; of feedback, the one that is judged
  std::vector<Conversation> conversations;  // in place of texts: one for each answer
  ConversationForm form = ConversationForm::messages;
  bool desirable = true;  // feedback

  bool is_chat() const { return !conversations.empty(); }
};

// DataKind::preference. The answers are `chosen` and `rejected` (or chosen_response, rejected_response), each
// a text, a message or a list of messages. What comes before them:
//   - `prompt`, a text or a list of messages;
//   - `messages` or `conversations`, a list of messages;
//   - Alpaca's `instruction` and `input`, with `system` and `history`; `question`, or `input` alone;
//   - none of these, or a prompt that the lists of messages repeat: what both sides begin with. Of texts in
//   the
//     form of Anthropic's HH ("\n\nHuman: ...\n\nAssistant: ...") this ends with the last "Assistant:".
//
// DataKind::feedback: `prompt` and `completion`, texts or lists of messages, a conversation (`messages`,
// `conversations`) whose last answer is judged, or Alpaca's fields with `output` or `completion`; and `label`
// or `kto_tag`, true or false.
//
// Throws DataError for a row that has no such form, and for an answer that is missing or empty.
AnswersRow read_answers(const nlohmann::ordered_json& row, DataKind kind);

}  // namespace trainer
