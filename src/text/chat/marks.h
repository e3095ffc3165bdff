// What other programs write on a message to say whether it is learned.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/text/conversation.h"

namespace trainer {

// Returns whether a key is a mark that is known: "train", "weight", ...
bool is_mark(std::string_view key);
std::vector<std::string> names_of_marks();

// Takes the marks that are known off a message, and returns its weight in the loss. Adds those that cannot be
// obeyed to `unknown`. Throws DataError that names the place `where` for a weight that is no number, and for
// marks that contradict each other.
float take_marks(nlohmann::ordered_json& message, const std::string& where,
                 std::vector<Conversation::UnknownMark>& unknown);
// The same for the parts of its content. Nothing if it has none, or if all have the weight 1.
std::vector<Conversation::PartWeight> take_marks_of_parts(nlohmann::ordered_json& message,
                                                          const std::string& where,
                                                          std::vector<Conversation::UnknownMark>& unknown);

}  // namespace trainer
