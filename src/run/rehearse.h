// memory.rehearse: a run that would run out of memory later does so before its first step.
#pragma once

#include "run/run_parts.h"

namespace trainer {

// Runs the largest step that the data can give, and logs its peak memory.
void rehearse(RunParts& parts);

}  // namespace trainer
