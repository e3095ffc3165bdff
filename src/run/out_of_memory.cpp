#include "run/out_of_memory.h"

#include <chrono>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/device/device.h"
#include "trainer/memory/device_memory.h"
#include "trainer/memory/limit.h"
#include "trainer/memory/oom.h"
#include "trainer/memory/summary.h"
#include "trainer/run/metric_rows.h"
#include "trainer/training/worst_batch.h"

#include "base/progress.h"
#include "memory/set_up_device.h"
#include "run/run_plan.h"

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
    return concat("out of memory between steps: ", oom_message(error));
  }
  return std::nullopt;
}

// Runs the largest step that the data can give, and logs its peak memory.
void rehearse_largest(RunParts& parts) {
  const auto begin = std::chrono::steady_clock::now();
  const bool encoder_decoder = parts.model().encoder_decoder();
  const EffectiveBatch batch =
      worst_batch(parts.resolved, encoder_decoder, parts.lengths, parts.ranks.count(), parts.device.type());
  parts.trainer.rehearse(batch);
  log::info(concat("memory test: largest batch, ", batch.samples.size(), " samples of up to ",
                   token_count(batch.samples[0], encoder_decoder), " tokens: peak ",
                   bytes_string(memory_summary(parts.device).peak), ", in ",
                   duration_string(seconds_since(begin)), " (memory.rehearse: false skips it)"));
}

// A limit in bytes is that of the GPU. A share is one of what is free on any device.
std::string limit_on(at::Device device, const std::string& limit) {
  return device.is_cpu() && MemoryLimit::parse(limit).bytes() ? std::string() : limit;
}

}  // namespace

OutOfMemoryHandler::OutOfMemoryHandler(RunParts& parts, const RunProgress& progress, Checkpoints& checkpoints,
                                       std::function<void()> after_move, NextDevice next_device)
    : parts_(parts),
      progress_(progress),
      checkpoints_(checkpoints),
      after_move_(std::move(after_move)),
      next_device_(next_device ? std::move(next_device) : [this] { return allowed_device(); }) {}

void OutOfMemoryHandler::rehearse() {
  OomLoop devices = on_some_device();
  while (devices.next()) {
    try {
      rehearse_largest(parts_);
    } catch (const OutOfMemoryError& error) {
      devices.gave_up(error);
    }
  }
}

StepResult OutOfMemoryHandler::step(const EffectiveBatch& batch, const StepCuts* replay) {
  StepResult result;
  OomLoop devices = on_some_device();
  while (devices.next()) {
    try {
      result = parts_.trainer.step(batch, replay);
    } catch (const OutOfMemoryError& error) {
      devices.gave_up(error);
    }
  }
  return result;
}

// Returns the loop around work of the trainer. When that gives up, the run moves to the next device.
OomLoop OutOfMemoryHandler::on_some_device() {
  return {parts_.device, /*clean_up=*/{}, [this](const OutOfMemory& oom) {
            if (!parts_.trainer.has_whole_weights() || !move_to_next_device(oom.message))
              throw of_family(ErrorCode::oom_step, OutOfMemoryError(oom.message));
          }};
}

void OutOfMemoryHandler::guard(const std::function<void()>& work) {
  const std::optional<std::string> message = out_of_memory_in(work, parts_.ranks.alone());
  if (!message) return;
  const std::string where = save_last_state();
  // Rank 0 says more than the others.
  const std::string measures =
      parts_.ranks.is_first() ? advice_after_retries(parts_.resolved, parts_.plan_target(), parts_.device)
                              : std::string();
  throw of_family(ErrorCode::oom_step, OutOfMemoryError(concat(*message, measures, "\n", where)));
}

// Each is tried once.
std::optional<DeviceLease> OutOfMemoryHandler::allowed_device() {
  const RecoveryConfig& recovery = parts_.resolved.recovery;
  if (!parts_.device.is_cuda() || !parts_.ranks.alone()) return std::nullopt;
  if (recovery.try_other_gpus && !std::exchange(tried_other_gpu_, true)) {
    if (auto other = acquire_other_gpu(parts_.device, parts_.resolved.gpu)) return other;
  }
  if (recovery.cpu_fallback && !std::exchange(tried_cpu_, true)) return DeviceLease{at::kCPU, {}, {}};
  return std::nullopt;
}

bool OutOfMemoryHandler::move_to_next_device(const std::string& error) {
  while (const auto lease = next_device_()) {
    if (move_to(*lease, error)) return true;
  }
  return false;
}

bool OutOfMemoryHandler::move_to(const DeviceLease& lease, const std::string& error) {
  const at::Device device = lease.device, left = parts_.device;
  log::warning(error);
  const auto no_room = catch_oom([&] {
    set_up_device(device, limit_on(device, parts_.resolved.memory.limit), parts_.resolved.training.tf32);
    parts_.trainer.move_to(device);
    parts_.device = device;
    if (after_move_) after_move_();
  });
  if (no_room) {
    log::warning(concat(device.str(), " has no room for the run: ", no_room->numbers()));
    parts_.trainer.move_to(left);
    parts_.device = left;
    if (device.is_cuda()) lift_gpu_limit(device);
    return false;
  }
  log::warning(concat("the run continues on ", describe_device(device), " after step ",
                      progress_.position.step, "; weights, optimizer state and position are those of ",
                      left.str()));
  Recovery recovery;
  recovery.stage = "device";
  recovery.oom.message = concat(left.str(), " -> ", device.str());
  parts_.output.write(recovery_row(progress_.position, recovery));
  lift_gpu_limit(left);
  settle_on(lease);
  return true;
}

// Other runs may take the GPU that this one has left. What was planned and learned was for that GPU.
void OutOfMemoryHandler::settle_on(const DeviceLease& lease) {
  parts_.lease = lease;
  parts_.has_moved = true;
  if (parts_.predictor) parts_.predictor->budget() = {};
  reset_peak_memory(lease.device);
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
    if (const auto problem = checkpoints_.save_now(!parts_.resolved.save.weights_only))
      return concat("The state of step ", step, " could not be saved: ", *problem, ". ",
                    checkpoints_.last_text());
  }
  return concat("The weights of step ", step, ", the last one, are in ", checkpoints_.last().string());
}

}  // namespace trainer
