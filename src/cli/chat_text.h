// A conversation as it is trained on, for people.
#pragma once

#include <string>

#include "trainer/base/terminal.h"
#include "trainer/text/conversation.h"

namespace trainer::cli {

// How much of it is learnt, its text as the template writes it, and its ids; what is learnt stands in colour,
// or in [[ ]]. Control characters but for line breaks are written as escapes. Ends in a line break.
std::string chat_as_text(const ChatTokens& chat, const Terminal& terminal);

}  // namespace trainer::cli
