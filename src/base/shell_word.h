// Words of commands that a user may copy.
#pragma once

#include <string>

namespace trainer {

// A word of a command line, quoted for a POSIX shell where it must be.
std::string shell_word(const std::string& word);

}  // namespace trainer
