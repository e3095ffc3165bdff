// What the numbers of the steps are watched for: such as are not finite, and spikes of the loss.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trainer/base/metrics.h"
#include "trainer/config/config.h"
#include "trainer/formats/run_position.h"
#include "trainer/run/bad_steps.h"
#include "trainer/run/loss_spikes.h"
#include "trainer/training/trainer.h"

namespace trainer {

class StepNumbers {
 public:
  // `begin`: where the run begins or goes on. Throws FormatError.
  StepNumbers(const Config& config, const RunPosition& begin);

  // Takes the result of a step and tells what is wrong with it; `row` of the step is marked. `origins`: the
  // file:line of its samples, asked for when they are to be named.
  void add(int64_t step, const StepResult& result, MetricRow& row,
           const std::function<std::vector<std::string>()>& origins);

  // Why the run has to end; "": it has not.
  std::string reason_to_end() const { return bad_steps_.reason_to_end(); }

  // Its state, to go on from.
  void keep(RunPosition& position) const;

 private:
  BadSteps bad_steps_;
  LossSpikes spikes_;
};

}  // namespace trainer
