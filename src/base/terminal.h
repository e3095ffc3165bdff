// The terminals behind stdout and stderr.
#pragma once

#include <cstddef>
#include <optional>

namespace trainer {

struct Terminal {
  bool colour = false;
  size_t width = 0;   // in columns; 0: unknown
  size_t height = 0;  // in lines; 0: unknown
};

// Returns the terminal of stdout; nullopt when stdout is a file or a pipe. Asks for the size at each call.
std::optional<Terminal> stdout_terminal();

// Returns the terminal of stderr, if lines can be redrawn there; nullopt when stderr is a file or a pipe,
// after use_plain_lines(), and when TERM is not set or "dumb".
std::optional<Terminal> stderr_terminal();

// Returns whether text on stderr has colours: on a terminal, unless NO_COLOR is set or CLICOLOR is 0;
// elsewhere only if CLICOLOR_FORCE asks for them. https://no-color.org, https://bixense.com/clicolors
bool stderr_has_colour();

// From here on stderr is treated as a pipe: no colours and no line that is redrawn. The environment variable
// TRAINER_PLAIN does the same.
void use_plain_lines();

// Returns whether the locale of the environment has UTF-8.
bool locale_has_utf8();

}  // namespace trainer
