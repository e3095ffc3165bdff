// Turns LibTorch's errors into errors of this program, with its exit codes.
#pragma once

#include <functional>
#include <string>

namespace trainer {

// Calls `command`. If it runs out of memory, throws OutOfMemoryError whose text ends with `memory_advice`; if
// a GPU fails, DeviceFault. Other errors of LibTorch lose their C++ backtrace.
void translate_torch_errors(const std::string& memory_advice, const std::function<void()>& command);

}  // namespace trainer
