// The terminal that shows the results.
#pragma once

#include <cstddef>
#include <optional>

namespace trainer {

struct Terminal {
  bool colour = false;  // NO_COLOR is not set
  size_t width = 0;     // in columns; 0: unknown
};

// Returns the terminal of stdout; nullopt when stdout is a file or a pipe.
std::optional<Terminal> stdout_terminal();

}  // namespace trainer
