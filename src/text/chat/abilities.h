// Finds out what a chat template writes, by rendering examples.
#pragma once

#include "trainer/text/chat_template.h"

namespace trainer {

// What cannot be found out, because the template refuses the example, is true: the template decides when it
// gets the conversation.
ChatAbilities find_abilities(const ChatTemplate& chat_template);

}  // namespace trainer
