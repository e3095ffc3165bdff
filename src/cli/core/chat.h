// A conversation, turn by turn.
#pragma once

#include "trainer/models/generate.h"

#include "cli/core/open_model.h"
#include "cli/core/prompts.h"

namespace trainer {

// Reads the user's messages from stdin, a line each, until the end or /exit, and answers each on stdout: on a
// terminal token by token.
void chat(const OpenModel& opened, const PromptEncoder& encoder, const GenerationConfig& config,
          const std::vector<std::string>& stops, at::Device device);

}  // namespace trainer
