#include "cli/core/loop.h"

#include <chrono>
#include <cmath>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/memory/device.h"
#include "trainer/memory/oom.h"
#include "trainer/memory/summary.h"
#include "trainer/training/replay_cuts.h"
#include "trainer/training/worst_batch.h"

#include "cli/core/keep_predictions.h"

namespace trainer {
namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

Loop::Loop(const RunParts& parts)
    : parts_(parts),
      config_(parts.config),
      run_(parts.run),
      order_(parts.train.size(), parts.config.data.shuffle, parts.config.seed) {
  update_check_.emplace(*parts_.prepared.model);
  if (!config_.training.replay_cuts.empty()) replay_ = read_step_cuts(config_.training.replay_cuts);
  parts_.trainer.on_recovery(
      [this](const Recovery& recovery) { run_.write(recovery_row(position_, recovery)); });
}

void Loop::go() {
  std::string lack;
  try {
    if (config_.memory.rehearse) rehearse();
    take_steps();
    run_.console().finish();
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
  std::future<EffectiveBatch> next = load(position_.samples_seen);
  Requests requests;
  while (!is_last() && !requests.stop) {
    const auto begin = std::chrono::steady_clock::now();
    const EffectiveBatch batch = next.get();
    const auto samples = static_cast<int64_t>(batch.samples.size());
    if (position_.step + 1 < parts_.length.total_steps) next = load(position_.samples_seen + samples);
    const StepResult result = step(batch);
    advance(batch);
    check(result);
    record(batch, result, seconds_since(begin));
    evaluate_if_due();
    requests = requests_after_step();
    if (requests.save) save_checkpoint();
  }
}

// Read and tokenised while the step before it computes.
std::future<EffectiveBatch> Loop::load(int64_t samples_seen) {
  return std::async(std::launch::async,
                    [this, indices = order_.step_at(samples_seen, config_.effective_batch_size())] {
                      return load_effective_batch(parts_.train, indices);
                    });
}

void Loop::advance(const EffectiveBatch& batch) {
  position_.step++;
  position_.samples_seen += static_cast<int64_t>(batch.samples.size());
  position_.epoch = epoch_of(position_.samples_seen, parts_.train.size());
}

// A run does not go on, nor save, with weights that NaN has reached.
void Loop::check(const StepResult& result) {
  if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) {
    throw NumericsError(
        concat("step ", position_.step, ": loss ", result.loss, ", gradient norm ", result.grad_norm,
               "; nothing was saved after it. Lower optimizer.learning_rate, add optimizer.warmup_steps, "
               "or use model.dtype=fp32. Checkpoints of earlier steps, if any, are in ",
               run_.directory().string()));
  }
  if (!update_check_ || result.learning_rate <= 0 || result.grad_norm <= 0) return;
  RetryOptions retry;
  retry.device = parts_.device;
  log::info(retry_on_oom([&] { return update_check_->after_update(result.learning_rate); }, retry));
  update_check_.reset();
}

void Loop::record(const EffectiveBatch& batch, const StepResult& result, double seconds) {
  run_.write(train_row(position_, batch, result, seconds, parts_.device));
  const MemorySummary memory = memory_summary(parts_.device);
  memory_watch_.add(position_, memory, run_);
  if (position_.step > 1 || !parts_.plan.known()) return;
  log::info(parts_.plan.compared(memory.peak));
  run_.write(parts_.plan.row(position_.step, memory.peak));
}

bool Loop::evaluate_if_due() {
  const TrainingConfig& training = config_.training;
  if (parts_.eval == nullptr || training.eval_strategy == IntervalStrategy::no) return false;
  if (!is_last() && !is_due(training.eval_strategy, training.eval_steps, position_.step, parts_.length))
    return false;
  evaluate();
  return true;
}

// The place for all that saves a run, or ends it, between two steps.
Loop::Requests Loop::requests_after_step() {
  Requests requests;
  requests.save =
      !is_last() && is_due(config_.save.strategy, config_.save.steps, position_.step, parts_.length);
  return requests;
}

// On another device where nothing helps on this one.
StepResult Loop::step(const EffectiveBatch& batch) {
  const auto replayed = replay_.find(position_.step + 1);
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
  log::warning(concat("the run goes on on ", describe_device(device), " after step ", position_.step,
                      "; weights, optimizer state and position are those of ", parts_.device.str()));
  Recovery recovery;
  recovery.stage = "device";
  recovery.lack.message = concat(parts_.device.str(), " -> ", device.str());
  run_.write(recovery_row(position_, recovery));
  if (update_check_) update_check_.emplace(*parts_.prepared.model);  // it compares on one device
  parts_.device = device;
  return true;
}

void Loop::evaluate() {
  const auto begin = std::chrono::steady_clock::now();
  const EvaluationResult result = parts_.trainer.evaluate(*parts_.eval);
  std::optional<Predictions> predictions;
  if (parts_.predictor != nullptr) {
    predictions = parts_.predictor->predict(
        *parts_.prepared.model, parts_.device,
        [this](int64_t done, int64_t total) { run_.console().progress("answers", done, total); });
  }
  run_.write(evaluation_row(position_, result, predictions ? &*predictions : nullptr, seconds_since(begin)));
  if (predictions) keep_predictions(*predictions, run_.directory(), position_.step, config_.evaluation.show);
}

void Loop::save_checkpoint() {
  const auto begin = std::chrono::steady_clock::now();
  int64_t bytes = 0;
  const auto path = parts_.prepared.artefacts.save_checkpoint(
      *parts_.prepared.model, run_.directory(), position_.step, config_.save.total_limit, &bytes);
  last_checkpoint_ = path;
  last_saved_step_ = position_.step;
  run_.write(save_row(position_, path, bytes, seconds_since(begin)));
}

// Where the state of the last step is, when memory did not suffice for the next.
std::string Loop::save_after_lack() {
  if (position_.step == 0) return "No step was finished, so there is nothing to save.";
  if (!parts_.trainer.has_whole_weights())
    return concat("The update of step ", position_.step + 1, " was half done and is not saved. ",
                  last_checkpoint());
  if (last_saved_step_ < position_.step) {
    try {
      save_checkpoint();
    } catch (const std::exception& error) {
      return concat("The state of step ", position_.step, " could not be saved: ", first_line(error.what()),
                    ". ", last_checkpoint());
    }
  }
  return concat("The weights of step ", position_.step, ", the last one, are in ", last_checkpoint_.string());
}

std::string Loop::last_checkpoint() const {
  return last_checkpoint_.empty() ? "There is no checkpoint of an earlier step."
                                  : concat("The last checkpoint is ", last_checkpoint_.string(), ".");
}

std::string Loop::what_is_lost() const {
  return concat("the GPU reported an error and cannot be used further, so the state of step ", position_.step,
                " is lost. ", last_checkpoint(),
                " Start again from there; if it happens again, CUDA_LAUNCH_BLOCKING=1 "
                "in the environment says where. The error: ");
}

void Loop::save_final() {
  const auto begin = std::chrono::steady_clock::now();
  const int64_t bytes = parts_.prepared.artefacts.save(*parts_.prepared.model, run_.directory());
  run_.write(save_row(position_, run_.directory(), bytes, seconds_since(begin)));
}

}  // namespace trainer
