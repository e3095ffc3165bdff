// OOM recovery of a run, when smaller micro-batches (training/oom_recovery.h) did not help. It moves to
// another GPU or to the CPU; if that does not help either, it saves the last good state and ends.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "trainer/device/acquire_device.h"
#include "trainer/memory/oom.h"
#include "trainer/training/trainer.h"

#include "run/checkpoints.h"
#include "run/run_parts.h"
#include "run/run_progress.h"

namespace trainer {

class OutOfMemoryHandler {
 public:
  // The device to try next; nullopt: none is left.
  using NextDevice = std::function<std::optional<DeviceLease>()>;

  // The arguments must outlive it. after_move is called when the run has moved to another device, before the
  // step or the rehearsal is repeated. Tests pass a next_device of their own; without it, config.recovery
  // says which devices a run that is alone on a GPU may move to.
  OutOfMemoryHandler(RunParts& parts, const RunProgress& progress, Checkpoints& checkpoints,
                     std::function<void()> after_move = {}, NextDevice next_device = {});

  // The rehearsal and Trainer::step(), repeated on the next device while they are out
  // of memory. They throw OutOfMemoryError when no device is left.
  void rehearse();
  StepResult step(const EffectiveBatch& batch, const StepCuts* replay = nullptr);

  // Calls `work`. When it is out of memory, saves the state of the last step, if it is whole, and throws
  // OutOfMemoryError that says where the state was saved. With several ranks this is for errors that all
  // throw (parallel/ranks.h, run_on_all_ranks()).
  void guard(const std::function<void()>& work);

 private:
  OomLoop on_some_device();
  std::optional<DeviceLease> allowed_device();
  bool move_to_next_device(const std::string& error);
  bool move_to(const DeviceLease& lease, const std::string& error);
  void settle_on(const DeviceLease& lease);
  std::string save_last_state();

  RunParts& parts_;
  const RunProgress& progress_;
  Checkpoints& checkpoints_;
  std::function<void()> after_move_;
  NextDevice next_device_;
  bool tried_other_gpu_ = false, tried_cpu_ = false;
};

}  // namespace trainer
