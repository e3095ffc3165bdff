// trainer train: the story of a run.
#include "trainer/run/train.h"

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/data/dataset.h"
#include "trainer/data/samples_text.h"
#include "trainer/device/acquire_device.h"
#include "trainer/device/device.h"
#include "trainer/memory/device_memory.h"
#include "trainer/memory/limit.h"
#include "trainer/memory/summary.h"
#include "trainer/run/describe_data.h"
#include "trainer/run/fixed_settings.h"
#include "trainer/run/open_model.h"
#include "trainer/run/progress.h"
#include "trainer/run/run.h"
#include "trainer/run/run_model.h"
#include "trainer/run/run_plan.h"
#include "trainer/run/with_clear_errors.h"
#include "trainer/text/tokenizer.h"
#include "trainer/training/predictions.h"
#include "trainer/training/trainer.h"

#include "run/keep_skipped_rows.h"
#include "run/loop.h"
#include "run/resume.h"
#include "run/start_block.h"

namespace trainer {
namespace {

constexpr int64_t kAnswersWhileTraining = 200;  // where evaluation.max_samples is not set

// A type that is left to the program stays what it was when the run began.
ModelDtype dtype_of(const Config& given, const Resumption& start) {
  const auto saved = start.position.fixed.find("model.dtype");
  if (given.model.dtype != ModelDtype::automatic || saved == start.position.fixed.end())
    return given.model.dtype;
  return saved->second == "fp32" ? ModelDtype::fp32 : ModelDtype::bf16;
}

void run_training(const Config& asked, const std::vector<MetricSink*>& sinks) {
  const TimeLimit time_limit(asked.training.max_hours);
  Run run = Run::open(asked);
  for (MetricSink* sink : sinks) run.add_sink(*sink);
  Resumption start = find_resumption(asked, run);
  if (start.is_complete) {
    log::info(concat("this run is complete after ", grouped(start.position.step),
                     " steps: ", run.directory().string(), "; there is nothing left to do"));
    return;
  }
  Config given = asked;
  given.model.dtype = dtype_of(asked, start);
  set_up_cpu(given.training.num_threads);
  const DeviceLease lease = acquire_device(given.device, given.gpu);
  const at::Device device = lease.device;
  if (device.is_cuda()) use_tf32(given.training.tf32);
  MemoryLimit::parse(given.memory.limit).apply(device);
  const auto tokenizer = load_run_tokenizer(given);
  Prepared prepared = prepare_model(given, *tokenizer, device);
  check_vocabulary(*tokenizer, *prepared.model, given.model.path);

  const bool encoder_decoder = prepared.model->encoder_decoder();
  const Dataset train = Dataset::open_train(given, *tokenizer, encoder_decoder);
  std::optional<Dataset> eval;
  if (!given.data.eval.empty()) eval = Dataset::open_eval(given, *tokenizer, encoder_decoder);

  const PlanTarget target{device.type(), prepared.model->dtype(), tokenizer->vocab_size(),
                          longest_sample(train)};
  const RunPlan plan = plan_run(given, target, device);
  const Config& config = plan.config;
  std::optional<Predictor> predictor;
  if (config.evaluation.generate) {
    predictor.emplace(*eval, *tokenizer, config, generation_config(config.model.path, *tokenizer),
                      kAnswersWhileTraining);
  }
  const SampleOrder order(train.sets(), config.data.shuffle, config.seed);
  const RunLength length = run_length(config, order.epoch_size(), position_of(start.position));

  if (start.position.step > length.total_steps) {
    log::warning(concat("the run stands after step ", start.position.step, ", beyond the ",
                        length.total_steps,
                        " that are asked for: no step is made, and the result is what it has"));
  }
  Trainer trainer(config, *prepared.model, device, length.total_steps);
  load_state(start, prepared, trainer);
  if (start.position.fixed.empty()) start.position.fixed = fixed_settings(asked);
  check_samples(start.position, samples_text(train), length.dataset_size, config);
  start.position.fixed["model.dtype"] = prepared.model->dtype() == at::kFloat ? "fp32" : "bf16";
  const RunDataReport data_report = describe_data(config, train, eval ? &*eval : nullptr, *tokenizer);
  check_limits(data_report, config.data);
  begin_run(run, start);
  keep_data_report(data_report, run.directory());
  keep_skipped_rows(train, eval ? &*eval : nullptr, run.directory());
  empty_cache(device);  // of what loading needed
  reset_peak_memory(device);
  show_start(run, config, prepared.artefacts, *prepared.model, plan, data_report, length, device);
  Loop({config, run, prepared, trainer, train, eval ? &*eval : nullptr, predictor ? &*predictor : nullptr,
        length, plan, device, start, time_limit})
      .go();
  log::info(concat("memory: ", memory_summary(device).text()));
  log::info(concat("done: ", run.directory().string()));
}

}  // namespace

void train(const Config& config, const std::vector<MetricSink*>& sinks) {
  with_clear_errors(
      "The model did not fit. What helps: a larger memory.limit, if the device has it; lora: {}; "
      "model.dtype: bf16; "
      "another device.",
      [&] { run_training(config, sinks); });
}

}  // namespace trainer
