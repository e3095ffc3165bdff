#include "run/loop.h"

#include <chrono>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/stop_signals.h"
#include "trainer/base/strings.h"
#include "trainer/device/device.h"
#include "trainer/formats/checkpoint.h"
#include "trainer/memory/oom.h"
#include "trainer/memory/summary.h"
#include "trainer/run/replay_cuts.h"
#include "trainer/run/saved_budgets.h"
#include "trainer/training/worst_batch.h"

#include "run/keep_predictions.h"
#include "run/seconds_since.h"

namespace trainer {
namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// The command that goes on from the newest checkpoint.
std::string how_to_go_on(const Config& config) {
  std::vector<std::string> changes;
  if (config.overwrite_output_dir) changes.emplace_back("overwrite_output_dir=false");
  if (config.resume != "auto") changes.emplace_back("resume=auto");
  return changes.empty() ? "the same command goes on from there"
                         : concat("with ", join(changes, " "), " the same command goes on from there");
}

}  // namespace

Loop::Loop(const RunParts& parts)
    : parts_(parts),
      config_(parts.config),
      run_(parts.run),
      record_(parts.config, parts.length, parts.start.position, parts.start.history),
      checkpoints_(parts.config, parts.run, parts.prepared.artefacts,
                   parts.plan.known() ? parts.plan.plan.peak() : 0),
      order_(parts.train.sets(), parts.config.data.shuffle, parts.config.seed) {
  if (!config_.training.replay_cuts.empty()) replay_ = read_step_cuts(config_.training.replay_cuts);
  parts_.trainer.on_recovery(
      [this](const Recovery& recovery) { run_.write(recovery_row(record_.position, recovery)); });
  if (parts.eval == nullptr || config_.training.eval_strategy == IntervalStrategy::no)
    record_.evaluation_due = false;  // the start that owed it still evaluated
  if (parts.start.checkpoint) {
    begin_where_it_was_stopped();
  } else {
    update_check_.emplace(*parts_.prepared.model);
  }
}

// Weights and optimizer are there already.
void Loop::begin_where_it_was_stopped() {
  const RunPosition& from = parts_.start.position;
  budgets_are_known_ =
      put_back_budgets(from.budgets, config_, parts_.device, parts_.trainer.budgets(), generation_budget());
  checkpoints_.begin_at(*parts_.start.checkpoint, from.step);
  // That step itself, or the last one before it whose numbers were finite.
  if (const int64_t good = from.step - from.bad_steps_in_a_row - 1; good >= 0)
    checkpoints_.went_well_after(good);
  // Its row came after what metrics.jsonl had when it was written.
  if (checkpoint_path(run_.directory(), from.step) == *parts_.start.checkpoint)
    run_.write(save_row(from.step, *parts_.start.checkpoint,
                        parts_.prepared.artefacts.weights(*parts_.prepared.model).bytes(), 0));
}

void Loop::go() {
  std::string lack;
  try {
    if (!is_over() || record_.evaluation_due) {
      if (config_.memory.rehearse && !budgets_are_known_) rehearse();
      take_steps();
    }
    run_.console().finish();
    checkpoints_.wait();
    save_final();
    return;
  } catch (const OutOfMemoryError& error) {
    lack = error.what();
  } catch (const std::exception& error) {
    if (is_device_fault(error)) throw DeviceFault(concat(what_is_lost(), first_line(error.what())));
    if (!is_oom(error)) throw;
    lack = concat("out of memory between steps: ", first_line(error.what()));
  }
  throw OutOfMemoryError(concat(lack, "\n", save_after_lack()));
}

// What would run out of memory late does so now.
void Loop::rehearse() {
  const auto begin = std::chrono::steady_clock::now();
  const bool encoder_decoder = parts_.prepared.model->encoder_decoder();
  const EffectiveBatch batch = worst_batch(config_, encoder_decoder, longest_sample(parts_.train));
  parts_.trainer.rehearse(batch);
  log::info(concat("rehearsal: the largest micro-batches and an update, ", batch.samples.size(),
                   " samples of ", token_count(batch.samples[0], encoder_decoder), " tokens, in ",
                   duration_string(seconds_since(begin)), "; peak ",
                   bytes_string(memory_summary(parts_.device).peak)));
}

void Loop::take_steps() {
  hold_stop_signals();
  if (record_.evaluation_due) {  // of the step that the run was stopped after
    end_step();
    has_come_on_ = true;
  }
  if (is_over()) return;
  StepLoader loader(parts_.train, coming_steps(), {config_.training.num_workers, config_.data.prefetch});
  const bool saves = config_.save.strategy != IntervalStrategy::no;
  if (saves) checkpoints_.check_space(state(!config_.save.weights_only).bytes());
  while (!is_over()) {
    const auto begin = std::chrono::steady_clock::now();
    const EffectiveBatch batch = loader.next();
    const double data_wait = seconds_since(begin);
    const StepResult result = step(batch);
    has_come_on_ = true;
    record_.advance(batch);
    record_.evaluation_due = is_evaluation_due();
    record(batch, result, {seconds_since(begin), data_wait});
    checkpoints_.look();
    check(result);
    if (!is_over() || record_.evaluation_due) answer_requests(seconds_since(begin));
    end_step();
  }
}

// What is due after a step.
void Loop::end_step() {
  const bool best_so_far = record_.evaluation_due && evaluate();
  record_.evaluation_due = false;
  if (record_.best.patience_is_over()) {
    log::info(concat("stops early: ", record_.best.metric(), " has not become better in ",
                     config_.training.early_stopping_patience, " evaluations"));
  }
  if (is_save_due(best_so_far)) save(!config_.save.weights_only);
}

// The samples of the steps that are still to be taken, one after the other.
StepLoader::NextIndices Loop::coming_steps() const {
  return [this, samples_seen = record_.position.samples_seen,
          left = record_.length().total_steps - record_.position.step]() mutable {
    if (left-- <= 0) return std::vector<int64_t>{};
    std::vector<int64_t> indices = order_.step_at(samples_seen, config_.effective_batch_size());
    samples_seen += static_cast<int64_t>(indices.size());
    return indices;
  };
}

void Loop::record(const EffectiveBatch& batch, const StepResult& result, const StepSeconds& seconds) {
  MetricRow row = train_row(record_.position, batch, result, seconds, parts_.device);
  record_.numbers.add(record_.position.step, result, row, [&] {
    std::vector<std::string> origins;
    const int64_t first = record_.position.samples_seen - static_cast<int64_t>(batch.samples.size());
    for (const int64_t index : order_.step_at(first, config_.effective_batch_size()))
      origins.push_back(parts_.train.origin(index));
    return origins;
  });
  run_.write(row);
  record_.history.add_step(record_.position, result);
  if (const std::string slow = data_watch_.add(seconds, config_); !slow.empty()) log::warning(slow);
  const MemorySummary memory = memory_summary(parts_.device);
  memory_watch_.add(record_.position, memory, run_);
  if (record_.position.step > 1 || !parts_.plan.known()) return;
  log::info(parts_.plan.compared(memory.peak));
  run_.write(parts_.plan.row(record_.position.step, memory.peak));
}

void Loop::check(const StepResult& result) {
  if (const std::string reason = record_.numbers.reason_to_end(); !reason.empty()) {
    throw NumericsError(concat("step ", record_.position.step, ": ", reason, ". ", last_good_checkpoint(),
                               " Lower optimizer.learning_rate, add optimizer.warmup_steps, use "
                               "model.dtype=fp32, or mend the samples."));
  }
  if (result.skipped) return;
  checkpoints_.went_well_after(record_.position.step - 1);
  if (!update_check_ || result.learning_rate <= 0 || result.grad_norm <= 0) return;
  RetryOptions retry;
  retry.device = parts_.device;
  log::info(retry_on_oom([&] { return update_check_->after_update(result.learning_rate); }, retry));
  update_check_.reset();
}

bool Loop::is_evaluation_due() const {
  const TrainingConfig& training = config_.training;
  if (parts_.eval == nullptr || training.eval_strategy == IntervalStrategy::no) return false;
  return record_.is_last() ||
         is_due(training.eval_strategy, training.eval_steps, record_.position, record_.length());
}

bool Loop::is_save_due(bool best_so_far) const {
  const SaveConfig& save = config_.save;
  if (best_so_far && config_.training.load_best_model_at_end) return true;
  // After the last step there is the result, too: a checkpoint is what a longer run goes on from.
  if (is_over()) return save.strategy != IntervalStrategy::no && !save.weights_only;
  const bool is_late = save.minutes > 0 && checkpoints_.minutes_since_last() >= save.minutes;
  return is_late || is_due(save.strategy, save.steps, record_.position, record_.length());
}

// What signals and the clock ask for: between two steps, and within an evaluation between its parts, so that
// neither a long evaluation nor the time until the next save is lost. next_seconds: until the run looks
// again.
void Loop::answer_requests(double next_seconds) {
  checkpoints_.look();
  if (const std::string signal = stop_signal(); !signal.empty()) save_and_stop(signal);
  if (has_come_on_ && parts_.time_limit.is_up(next_seconds + checkpoints_.last_seconds()))
    save_and_stop(concat("training.max_hours: ", config_.training.max_hours));
  if (!take_save_request()) return;
  log::info("SIGUSR1: the run saves its state and goes on");
  save(/*complete=*/true);
}

void Loop::save(bool complete) {
  checkpoints_.wait();  // its row comes before what is saved now
  checkpoints_.save(state(complete), parts_.device);
}

void Loop::save_and_stop(const std::string& reason) {
  run_.console().finish();
  checkpoints_.wait();
  const std::string where = concat(reason, ": the run ends after step ", record_.position.step, " of ",
                                   record_.length().total_steps);
  const std::string problem =
      checkpoints_.last_step() < record_.position.step ? checkpoints_.save_now(state(/*complete=*/true)) : "";
  if (!problem.empty()) {
    throw FormatError(
        concat(where, ", and its state could not be saved: ", problem, ". ", last_checkpoint()));
  }
  throw Error(ExitCode::interrupted,
              concat(where, " and is saved in ", checkpoints_.last().string(), "; ", how_to_go_on(config_)));
}

// On another device where nothing helps on this one.
StepResult Loop::step(const EffectiveBatch& batch) {
  const auto replayed = replay_.find(record_.position.step + 1);
  for (;;) {
    std::string lack;
    try {
      return parts_.trainer.step(batch, replayed != replay_.end() ? &replayed->second : nullptr);
    } catch (const OutOfMemoryError& error) {
      lack = error.what();
    }
    if (!parts_.trainer.has_whole_weights() || !find_other_device(lack)) throw OutOfMemoryError(lack);
  }
}

bool Loop::find_other_device(const std::string& lack) {
  if (!parts_.device.is_cuda()) return false;
  if (config_.recovery.try_other_gpus && !other_gpu_) {
    other_gpu_ = acquire_other_gpu(parts_.device, config_.gpu);
    if (other_gpu_ && move_to(other_gpu_->device, lack)) return true;
  }
  return config_.recovery.cpu_fallback && move_to(at::kCPU, lack);
}

bool Loop::move_to(at::Device device, const std::string& lack) {
  log::warning(lack);
  if (const auto no_room = catch_oom([&] { parts_.trainer.move_to(device); })) {
    log::warning(concat(device.str(), " has no room for the run: ", no_room->numbers()));
    parts_.trainer.move_to(parts_.device);
    return false;
  }
  log::warning(concat("the run goes on on ", describe_device(device), " after step ", record_.position.step,
                      "; weights, optimizer state and position are those of ", parts_.device.str()));
  Recovery recovery;
  recovery.stage = "device";
  recovery.lack.message = concat(parts_.device.str(), " -> ", device.str());
  run_.write(recovery_row(record_.position, recovery));
  if (update_check_) update_check_.emplace(*parts_.prepared.model);  // it compares on one device
  parts_.device = device;
  return true;
}

bool Loop::evaluate() {
  const auto begin = std::chrono::steady_clock::now();
  const auto between = [this] { answer_requests(/*next_seconds=*/0); };
  const EvaluationResult result = parts_.trainer.evaluate(*parts_.eval, between);
  std::optional<Predictions> predictions;
  if (parts_.predictor != nullptr) {
    predictions =
        parts_.predictor->predict(*parts_.prepared.model, parts_.device, [&](int64_t done, int64_t total) {
          between();
          run_.console().progress("answers", done, total);
        });
  }
  const MetricRow row =
      evaluation_row(record_.position, result, predictions ? &*predictions : nullptr, seconds_since(begin));
  run_.write(row);
  record_.history.add_evaluation(row);
  if (predictions)
    keep_predictions(*predictions, run_.directory(), record_.position.step, config_.evaluation.show);
  return record_.best.add(row);
}

// As it is now; its tensors are those of the run. complete: a run can go on from it.
RunState Loop::state(bool complete) {
  RunState state;
  state.weights = parts_.prepared.artefacts.weights(*parts_.prepared.model);
  state.trainer_state = record_.to_trainer_state(run_.directory());
  if (!complete) return state;
  state.optimizer = parts_.trainer.optimizer_state();
  state.position = record_.to_position(
      run_.metrics_bytes(),
      budgets_to_keep(config_, parts_.device, parts_.trainer.budgets(), generation_budget()));
  return state;
}

BatchBudget* Loop::generation_budget() {
  return parts_.predictor != nullptr ? &parts_.predictor->budget() : nullptr;
}

// Where the state of the last step is, when memory did not suffice for the next.
std::string Loop::save_after_lack() {
  const int64_t step = record_.position.step;
  checkpoints_.wait();
  if (step == 0) return "No step was finished, so there is nothing to save.";
  if (!parts_.trainer.has_whole_weights())
    return concat("The update of step ", step + 1, " was half done and is not saved. ", last_checkpoint());
  if (checkpoints_.last_step() < step) {
    const std::string problem = checkpoints_.save_now(state(!config_.save.weights_only));
    if (!problem.empty())
      return concat("The state of step ", step, " could not be saved: ", problem, ". ", last_checkpoint());
  }
  return concat("The weights of step ", step, ", the last one, are in ", checkpoints_.last().string());
}

std::string Loop::last_checkpoint() const {
  return checkpoints_.last().empty() ? "There is no checkpoint of an earlier step."
                                     : concat("The last checkpoint is ", checkpoints_.last().string(), ".");
}

// One that was written when the weights were bad already is none.
std::string Loop::last_good_checkpoint() {
  checkpoints_.wait();
  const int64_t good_step = checkpoints_.good_step().value_or(-1);
  std::filesystem::path good;
  if (parts_.start.checkpoint && parts_.start.position.step <= good_step) good = *parts_.start.checkpoint;
  for (const int64_t step : checkpoint_steps(run_.directory()))
    if (step <= good_step) good = checkpoint_path(run_.directory(), step);
  if (!good.empty()) {
    return concat("The last checkpoint from which a step went well is ", good.string(),
                  "; resume=", good.string(), " goes on from it.");
  }
  if (checkpoints_.last().empty()) return "There is no checkpoint.";
  return concat("No step went well after the last checkpoint, ", checkpoints_.last().string(), ".");
}

std::string Loop::what_is_lost() {
  checkpoints_.wait();
  return concat("the GPU reported an error and cannot be used further, so the state of step ",
                record_.position.step, " is lost. ", last_checkpoint(),
                " The same command goes on from there; if it happens again, CUDA_LAUNCH_BLOCKING=1 "
                "in the environment says where. The error: ");
}

// The weights of the best evaluation in the place of the last ones.
void Loop::take_best_model() {
  const std::optional<int64_t> step = record_.best.step();
  if (!step)
    log::warning(concat("no evaluation gave a number for ", record_.best.metric(),
                        ": the result is that of the last step"));
  if (!step || *step == record_.position.step) return;
  const std::filesystem::path best = checkpoint_path(run_.directory(), *step);
  try {
    parts_.prepared.artefacts.load(*parts_.prepared.model, read_checkpoint(best).path);
    log::info(concat("the result is the best model, of step ", *step, ": ", record_.best.metric(), " ",
                     *record_.best.value()));
  } catch (const FormatError& error) {
    log::warning(concat("the best model, of step ", *step, ", cannot be read: ", error.what(),
                        "; the result is that of the last step"));
  }
}

void Loop::save_final() {
  const auto begin = std::chrono::steady_clock::now();
  const std::filesystem::path& directory = run_.directory();
  const int64_t metrics_bytes = run_.metrics_bytes();
  if (config_.training.load_best_model_at_end) take_best_model();
  const SavedWeights weights = parts_.prepared.artefacts.weights(*parts_.prepared.model);
  try {
    parts_.prepared.artefacts.save(weights, directory);
    write_trainer_state(directory, record_.to_trainer_state(directory));
    const double seconds = seconds_since(begin);
    run_.write(save_row(record_.position.step, directory, weights.bytes(), seconds));
    write_position(directory, record_.to_position(metrics_bytes, {}));  // now it is complete
    log::info(concat("saved ", directory.string(), "  ", bytes_string(weights.bytes()), "  in ",
                     duration_string(seconds)));
    checkpoints_.went_well_after(record_.position.step);  // there is no further step to show it
  } catch (const FormatError& error) {
    throw FormatError(concat(error.what(), "; the result is not saved. ", last_checkpoint(),
                             " The same command goes on when this is mended"));
  }
}

}  // namespace trainer
