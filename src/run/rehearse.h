// memory.rehearse: what would run out of memory late does so before the first step.
#pragma once

#include "run/run_parts.h"

namespace trainer {

// Goes through the largest step that the data can give, and logs its peak.
void rehearse(RunParts& parts);

}  // namespace trainer
