#include "run/step_numbers.h"

#include "trainer/base/log.h"
#include "trainer/base/strings.h"

namespace trainer {

StepNumbers::StepNumbers(const Config& config, const RunPosition& begin)
    : bad_steps_(std::filesystem::path(config.output_dir) / "bad_steps.jsonl", config.training.max_bad_steps,
                 begin.step, begin.bad_steps_in_a_row),
      spikes_(begin.recent_losses) {}

void StepNumbers::add(int64_t step, const StepResult& result, MetricRow& row,
                      const std::function<std::vector<std::string>()>& origins) {
  bad_steps_.add(step, result, result.skipped ? origins() : std::vector<std::string>());
  if (result.skipped || !spikes_.add(result.loss)) return;
  row.values["spike"] = true;
  log::warning(concat("step ", step, ": a loss of ", result.loss,
                      " is far above those of the steps before, whose median is ", spikes_.median()));
}

void StepNumbers::keep(RunPosition& position) const {
  position.bad_steps_in_a_row = bad_steps_.in_a_row();
  position.recent_losses = spikes_.recent();
}

}  // namespace trainer
