// What single values cannot show: keys that contradict each other, and what a training run needs.
#pragma once

#include "trainer/config/config.h"

#include "config/problems.h"

namespace trainer::config {

// Keys that contradict each other. Looks at the values only.
Problems contradictions(const Config& config);

// Required keys, and the files and directories that they name. `names_stay`: names on the hub have not been
// resolved yet, and are no problem.
Problems missing_for_training(const Config& config, bool names_stay = false);

}  // namespace trainer::config
