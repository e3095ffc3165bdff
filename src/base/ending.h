// What an exception that ends the program means: its exit code and its message.
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
  int code;  // that the process ends with
  std::string message;
  std::optional<ErrorCode> family = std::nullopt;  // absent where there is nothing to explain

  // The message with a last line that says which command explains it.
  std::string full_text() const;
};

// `failure` must hold an exception. Those of LibTorch must have been translated before.
Ending ending_of(const std::exception_ptr& failure);

}  // namespace trainer
