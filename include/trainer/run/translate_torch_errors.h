// LibTorch's errors in this program's words and with its exit codes.
#pragma once

#include <functional>
#include <string>

namespace trainer {

// Calls `command`. A lack of memory leaves as OutOfMemoryError, ending with `memory_advice`; a lost GPU as
// DeviceFault; other errors of LibTorch without their C++ backtrace.
void translate_torch_errors(const std::string& memory_advice, const std::function<void()>& command);

}  // namespace trainer
