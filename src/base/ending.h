// The exit code and message of an exception that ends the program.
#pragma once

#include <exception>
#include <optional>
#include <string>

#include "trainer/base/error_code.h"

namespace trainer {

constexpr int kUnexpectedError = 1;  // the exit code of what no ExitCode covers
constexpr const char* kOutOfHostMemory =
    "out of memory on the host: the machine, a container's limit or ulimit -v gives no more";

struct Ending {
  int code;  // the exit code of the process
  std::string message;
  std::optional<ErrorCode> family = std::nullopt;  // absent where there is nothing to explain
  std::string details = "";  // what a library says of an internal error, for the log at level debug

  // The message with a last line that says which command explains it.
  std::string full_text() const;
};

// `failure` must hold an exception. Those of LibTorch must have been translated before.
Ending ending_of(const std::exception_ptr& failure);

}  // namespace trainer
