// The end of a run by an error: errors of LibTorch, and errors of several ranks, which end together.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "trainer/parallel/ranks.h"

namespace trainer {

// Calls `run`. When it throws, leaves a message for the other ranks, and throws the error that this rank is
// to show: on rank 0 the cause, also if it happened on another rank, with its exit code; on the others an
// error of that code without text, if rank 0 shows it.
void end_with_others(const Ranks& ranks, const std::function<void()>& run);

// Returns how a rank ends that has thrown `error`, which is being handled. When another rank was lost, that
// is how that rank ended, if it has left a message.
RankEnd end_of_run(const Ranks& ranks, const std::exception& error);

// Calls `command`. If it runs out of memory, throws OutOfMemoryError whose text ends with `memory_advice`; if
// a GPU fails, DeviceFault. Other errors of LibTorch lose their C++ backtrace.
void translate_torch_errors(const std::string& memory_advice, const std::function<void()>& command);

}  // namespace trainer
