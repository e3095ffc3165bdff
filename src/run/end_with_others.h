// How the ranks of a run end together.
#pragma once

#include <functional>

#include "trainer/parallel/ranks.h"

namespace trainer {

// Calls `run`. When it throws, leaves a word for the other ranks, and throws the error that this rank is to
// show: on rank 0 the cause, also if it happened on another rank, with its exit code; on the others an error
// of that code without text, if rank 0 shows it.
void end_with_others(const Ranks& ranks, const std::function<void()>& run);

}  // namespace trainer
