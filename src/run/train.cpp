// trainer train: a run from start to end.
#include "trainer/run/train.h"

#include <exception>

#include "trainer/base/ending.h"
#include "trainer/base/error.h"
#include "trainer/base/first_line.h"
#include "trainer/base/log.h"
#include "trainer/base/progress.h"
#include "trainer/base/strings.h"
#include "trainer/data/samples_text.h"
#include "trainer/memory/device_memory.h"
#include "trainer/memory/oom.h"
#include "trainer/memory/summary.h"
#include "trainer/notify/notifier.h"
#include "trainer/run/describe_data.h"
#include "trainer/run/fixed_settings.h"
#include "trainer/run/output_directory.h"
#include "trainer/run/time_limit.h"
#include "trainer/run/translate_torch_errors.h"

#include "run/environment.h"
#include "run/keep_skipped_rows.h"
#include "run/loop.h"
#include "run/resume.h"
#include "run/run_parts.h"
#include "run/start_block.h"
#include "run/what_fits.h"

namespace trainer {
namespace {

// What must not change between the starts of this run.
void fix_settings(const RunParts& parts, const Config& asked, Resumption& start) {
  if (start.position.fixed.empty()) start.position.fixed = fixed_settings(asked);
  check_samples(start.position, samples_text(parts.train), parts.length.dataset_size, parts.config);
  start.position.fixed["model.dtype"] = parts.prepared.model->dtype() == at::kFloat ? "fp32" : "bf16";
}

// From here on the output directory belongs to this run. All problems of the data were found before.
void begin_output(RunParts& parts, const Resumption& start) {
  const Config& config = parts.config;
  OutputDirectory& output = parts.output;
  const RunDataReport data = [&] {
    const Progress shown("looking at the data");
    return describe_data(config, parts.train, parts.eval_data(), parts.order, *parts.tokenizer);
  }();
  check_limits(data, config.data);
  begin_run(output, start);
  keep_data_report(data, output.directory());
  keep_skipped_rows(parts.train, parts.eval_data(), output.directory());
  keep_environment(output.directory(), parts.model(), parts.device, parts.length, start.position.step,
                   start.keeps_results);
  empty_cache(parts.device);  // of what loading needed
  reset_peak_memory(parts.device);
  show_start(output, config, parts.prepared.artefacts, parts.model(), parts.plan, data, parts.length,
             start.position.step, parts.device);
}

// How a run ended that has thrown `error`, which is being handled.
void record_end(OutputDirectory& output, const std::exception& error) {
  const int code =
      is_oom(error) ? static_cast<int>(ExitCode::out_of_memory) : ending_of(std::current_exception()).code;
  const bool saved = code == static_cast<int>(ExitCode::interrupted);
  output.end(saved ? RunPhase::stopped : RunPhase::failed, code, first_line(error.what()));
}

void run_training(const Config& asked, const std::vector<MetricSink*>& sinks, Notifier& notifier) {
  const TimeLimit time_limit(asked.training.max_hours);
  OutputDirectory output = OutputDirectory::open(asked);
  for (MetricSink* sink : sinks) output.add_sink(*sink);
  output.add_sink(notifier);
  Resumption start = find_resumption(asked, output);
  if (start.is_complete) {
    log::info(concat("this run is complete after ", grouped(start.position.step),
                     " steps: ", output.directory().string(), "; there is nothing left to do"));
    return;
  }
  RunParts parts(asked, output, start);
  {
    const Progress shown("restoring the state of the run");
    load_state(start, parts.prepared, parts.trainer);
  }
  fix_settings(parts, asked, start);
  try {
    begin_output(parts, start);
    notifier.begin(start.position.step, outlook_of(parts.config, parts.length, parts.eval_data() != nullptr));
    Loop(parts, start, time_limit).go();
  } catch (const std::exception& error) {
    record_end(output, error);
    throw;
  }
  output.end(RunPhase::finished, 0, "");
  log::info(concat("memory: ", memory_summary(parts.lease.device).text()));
  log::info(concat("done: ", output.directory().string()));
}

}  // namespace

void train(const Config& config, const std::vector<MetricSink*>& sinks) {
  Notifier notifier(config);
  try {
    translate_torch_errors(kModelDidNotFit, [&] { run_training(config, sinks, notifier); });
  } catch (...) {
    notifier.failed(std::current_exception());
    throw;
  }
  notifier.finished();
}

}  // namespace trainer
