// A conversation, turn by turn.
#pragma once

#include "trainer/generation/generate.h"

#include "commands/prompts.h"
#include "run/run_model.h"

namespace trainer {

// Reads the user's messages from stdin, one per line, until the end or /exit, and answers each on stdout,
// token by token. On a terminal lines can be edited, Ctrl-C ends an answer, and an Error ends only the turn.
void chat(const OpenModel& opened, const PromptEncoder& encoder, const GenerationConfig& config,
          const std::vector<std::string>& stops, at::Device device);

}  // namespace trainer
