// The roles of a conversation's messages, and what other programs call them.
#pragma once

#include <string>

#include "trainer/text/conversation.h"

namespace trainer {

// Returns what chat templates call the role of this name: "user" for "human", "Human" and "prompter". Names
// that are not known are returned as they are.
std::string role_named(const std::string& name);

// Throws a DataError that names the first message whose role is not known, and those that are; if the
// conversation has an answer all the same, warns once. A role that the template (nullptr: none) names is
// known; with LossOn::everything, all are.
void refuse_unknown_roles(const Conversation& conversation, const ChatTemplate* chat_template,
                          LossOn loss_on);

}  // namespace trainer
