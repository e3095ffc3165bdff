#include "trainer/run/train.h"

#include "trainer/base/stop_signals.h"

#include "commands/entry_points.h"

extern "C" void trainer_core_train(const trainer::Config& config) {
  const trainer::StopSignals signals;
  trainer::train(config);
}
