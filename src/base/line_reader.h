// Reads lines that a person types on a terminal.
#pragma once

#include <string>

struct editline;  // libedit's
struct history;

namespace trainer {

// A process has one of these: it has one terminal.
class LineReader {
 public:
  // Lines are edited by this library, libedit, with its keys of emacs and the earlier lines on the arrow
  // keys. Where it is missing, the terminal's own mode for lines is used.
  explicit LineReader(const char* libedit = "libedit.so.2");
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // Returns whether stdin and stdout are a terminal that lines can be edited on.
  static bool is_possible();

  enum class Ending { line, interrupted, ended };
  // Shows the prompt and reads a line into `line`; a pasted text stays one line, with its line breaks. The
  // terminal is as before when this returns. interrupted: Ctrl-C; `line` is what was typed so far. ended:
  // Ctrl-D on an empty line, or the terminal is gone.
  Ending read(const std::string& prompt, std::string& line);

 private:
  void open();

  bool edits_ = false;
  editline* editor_ = nullptr;
  struct history* earlier_ = nullptr;
};

}  // namespace trainer
