// How a run ended, in words.
#pragma once

#include <string>

#include "base/ending.h"

namespace trainer {

// "exit code 5, out of memory"
std::string code_text(const Ending& ending);

}  // namespace trainer
