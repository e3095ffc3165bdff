// Reads lines that a person types on a terminal, with editing and the earlier lines on the arrow keys.
#pragma once

#include <string>

#include "base/edited_line.h"

namespace trainer {

class LineReader {
 public:
  // Returns whether stdin and stdout are a terminal that lines can be edited on.
  static bool is_possible();

  enum class Ending { line, interrupted, ended };
  // Shows the prompt and reads a line into `line`. The terminal is as before when this returns. interrupted:
  // Ctrl-C; `line` is what was typed so far. ended: Ctrl-D on an empty line, or the terminal is gone.
  Ending read(const std::string& prompt, std::string& line);

 private:
  void show(const std::string& prompt);

  KeyDecoder keys_;
  EditedLine edited_;
  EditedLine::View shown_;
};

}  // namespace trainer
