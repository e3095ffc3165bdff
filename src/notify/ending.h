// How a run ended, in words.
#pragma once

#include <exception>
#include <string>

#include "trainer/base/error.h"

namespace trainer {

struct Ending {
  int code;  // that the process ends with
  std::string message;

  bool is_stop() const { return code == static_cast<int>(ExitCode::interrupted); }
  // "exit code 5, out of memory"
  std::string code_text() const;
};

Ending ending_of(const std::exception_ptr& error);

}  // namespace trainer
