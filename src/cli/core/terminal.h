// Where the results are read.
#pragma once

#include <cstddef>

namespace trainer {

struct Terminal {
  bool colour = false;  // stdout is a terminal, and NO_COLOR is not set
  size_t width = 0;     // of that terminal; 0: it is none, or not known
};

Terminal stdout_terminal();

}  // namespace trainer
