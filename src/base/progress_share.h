// For work whose things take long and are done side by side, such as answers: how much of all of it is done,
// parts of things included. The time that is left then follows from that, and not from how many things are
// done.
#pragma once

#include "base/progress.h"

namespace trainer {

// `share`: from 0 to 1. From any thread; takes a lock.
void set_share(const Progress& work, double share);

}  // namespace trainer
