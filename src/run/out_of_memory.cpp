#include "run/out_of_memory.h"

#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/first_line.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/device/device.h"
#include "trainer/memory/limit.h"
#include "trainer/memory/oom.h"
#include "trainer/memory/set_up_device.h"
#include "trainer/run/metric_rows.h"

#include "run/rehearse.h"
#include "run/what_fits.h"

namespace trainer {
namespace {

// Returns the message if `work` runs out of memory. The exception, which may keep tensors alive, is gone
// then. One of several ranks that is out of memory between steps is so alone: the others cannot save with it.
std::optional<std::string> out_of_memory_in(const std::function<void()>& work, bool alone) {
  try {
    work();
  } catch (const OutOfMemoryError& error) {
    return error.what();
  } catch (const std::exception& error) {
    if (!alone || !is_oom(error)) throw;
    return concat("out of memory between steps: ", first_line(error.what()));
  }
  return std::nullopt;
}

}  // namespace

OutOfMemoryHandler::OutOfMemoryHandler(RunParts& parts, const RunProgress& progress, Checkpoints& checkpoints,
                                       std::function<void()> after_move)
    : parts_(parts), progress_(progress), checkpoints_(checkpoints), after_move_(std::move(after_move)) {}

void OutOfMemoryHandler::rehearse() {
  on_some_device([this] { trainer::rehearse(parts_); });
}

StepResult OutOfMemoryHandler::step(const EffectiveBatch& batch, const StepCuts* replay) {
  StepResult result;
  on_some_device([&] { result = parts_.trainer.step(batch, replay); });
  return result;
}

void OutOfMemoryHandler::on_some_device(const std::function<void()>& work) {
  for (;;) {
    std::string message;
    try {
      return work();
    } catch (const OutOfMemoryError& error) {
      message = error.what();
    }
    if (!parts_.trainer.has_whole_weights() || !move_to_next_device(message))
      throw of_family(ErrorCode::oom_step, OutOfMemoryError(message));
  }
}

void OutOfMemoryHandler::guard(const std::function<void()>& work) {
  const std::optional<std::string> message = out_of_memory_in(work, parts_.ranks.alone());
  if (!message) return;
  const std::string where = save_last_state();
  // Rank 0 says more than the others.
  const std::string measures =
      parts_.ranks.is_first() ? measures_after_retries(parts_.config, parts_.plan_target(), parts_.device)
                              : std::string();
  throw of_family(ErrorCode::oom_step, OutOfMemoryError(concat(*message, measures, "\n", where)));
}

bool OutOfMemoryHandler::move_to_next_device(const std::string& error) {
  const RecoveryConfig& recovery = parts_.config.recovery;
  if (!parts_.device.is_cuda() || !parts_.ranks.alone()) return false;
  if (recovery.try_other_gpus && !other_gpu_) {
    other_gpu_ = acquire_other_gpu(parts_.device, parts_.config.gpu);
    if (other_gpu_ && move_to(other_gpu_->device, error)) return true;
  }
  return recovery.cpu_fallback && move_to(at::kCPU, error);
}

bool OutOfMemoryHandler::move_to(at::Device device, const std::string& error) {
  log::warning(error);
  const auto no_room = catch_oom([&] {
    if (device.is_cuda()) set_up_device(device, parts_.config.memory.limit, parts_.config.training.tf32);
    parts_.trainer.move_to(device);
  });
  if (no_room) {
    log::warning(concat(device.str(), " has no room for the run: ", no_room->numbers()));
    parts_.trainer.move_to(parts_.device);
    if (device.is_cuda()) lift_gpu_limit(device);
    return false;
  }
  log::warning(concat("the run continues on ", describe_device(device), " after step ",
                      progress_.position.step, "; weights, optimizer state and position are those of ",
                      parts_.device.str()));
  Recovery recovery;
  recovery.stage = "device";
  recovery.lack.message = concat(parts_.device.str(), " -> ", device.str());
  parts_.output.write(recovery_row(progress_.position, recovery));
  lift_gpu_limit(parts_.device);
  if (after_move_) after_move_();
  parts_.device = device;
  return true;
}

// Saves the state of the last step if possible, and says where it is.
std::string OutOfMemoryHandler::save_last_state() {
  const int64_t step = progress_.position.step;
  checkpoints_.wait();
  if (step == 0) return "No step was finished, so there is nothing to save.";
  if (!parts_.trainer.has_whole_weights())
    return concat("The update of step ", step + 1, " was half done and is not saved. ",
                  checkpoints_.last_text());
  if (checkpoints_.last_step() < step) {
    if (const auto problem = checkpoints_.save_now(!parts_.config.save.weights_only))
      return concat("The state of step ", step, " could not be saved: ", *problem, ". ",
                    checkpoints_.last_text());
  }
  return concat("The weights of step ", step, ", the last one, are in ", checkpoints_.last().string());
}

}  // namespace trainer
