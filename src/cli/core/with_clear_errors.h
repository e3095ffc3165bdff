// LibTorch's errors in this program's words and with its exit codes.
#pragma once

#include <functional>

namespace trainer {

// Calls `command`. An out-of-memory error of LibTorch leaves as OutOfMemoryError with advice; other errors of
// LibTorch without their C++ backtrace.
void with_clear_errors(const std::function<void()>& command);

}  // namespace trainer
