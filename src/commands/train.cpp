// trainer train: the run itself is train() of the layer run.
#include "trainer/run/train.h"

#include "trainer/base/stop_signals.h"

#include "commands/library.h"

namespace trainer {
namespace {

const InLibrary train_in_library(+[](TrainOptions& options) {
  const StopSignals signals;
  train(options.config);
});

}  // namespace
}  // namespace trainer
