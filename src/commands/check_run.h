// What `trainer doctor --config` checks of a run: its files exist, its model loads, and the disk has room for
// its results.
#pragma once

#include "trainer/config/config.h"

#include "commands/checkup.h"

namespace trainer {

// Takes the device and loads the model as the run would, and trains nothing. Leaves no file behind.
void check_run(Checkup& checkup, const Config& config);

}  // namespace trainer
