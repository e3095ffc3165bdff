// A conversation as it is trained on, for people.
#pragma once

#include <string>

#include "trainer/text/conversation.h"

#include "base/terminal.h"

namespace trainer::cli {

// Returns how many tokens are learned, the text as the template writes it, and the ids. What is learned is in
// colour, or in [[ ]]. Control characters other than line breaks are written as escapes. Ends in a line
// break.
std::string chat_as_text(const ChatTokens& chat, const Terminal& terminal);

}  // namespace trainer::cli
