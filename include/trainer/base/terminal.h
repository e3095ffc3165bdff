// Where the results are read.
#pragma once

#include <cstddef>
#include <optional>

namespace trainer {

struct Terminal {
  bool colour = false;  // NO_COLOR is not set
  size_t width = 0;     // 0: not known
};

// Of stdout; none where that is a file or a pipe.
std::optional<Terminal> stdout_terminal();

}  // namespace trainer
