// The steps of a run, with what happens between them.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "trainer/config/config.h"
#include "trainer/data/batching.h"
#include "trainer/data/dataset.h"
#include "trainer/data/step_loader.h"
#include "trainer/device/acquire_device.h"
#include "trainer/run/data_watch.h"
#include "trainer/run/progress.h"
#include "trainer/run/run.h"
#include "trainer/run/run_model.h"
#include "trainer/run/run_plan.h"
#include "trainer/run/time_limit.h"
#include "trainer/training/predictions.h"
#include "trainer/training/trainer.h"
#include "trainer/training/update_check.h"

#include "run/checkpoints.h"
#include "run/memory_watch.h"
#include "run/resume.h"
#include "run/run_record.h"

namespace trainer {

// What a run consists of; all of it outlives the loop.
struct RunParts {
  const Config& config;  // with numbers where the configuration says auto
  Run& run;
  Prepared& prepared;
  Trainer& trainer;
  const Dataset& train;
  const Dataset* eval;   // nullptr: none
  Predictor* predictor;  // nullptr: no answers are generated
  RunLength length;
  const RunPlan& plan;
  at::Device device;
  const Resumption& start;
  const TimeLimit& time_limit;
};

class Loop {
 public:
  explicit Loop(const RunParts& parts);

  // From where the run stands to its end, and saves the result. Throws OutOfMemoryError, when nothing helped,
  // with where the weights of the last step are; NumericsError; DeviceFault; with ExitCode::interrupted when
  // a signal or training.max_hours ended it and the state was saved.
  void go();

 private:
  // After the last step, also where that is an early one.
  bool is_over() const { return record_.is_last() || record_.best.patience_is_over(); }
  void rehearse();
  void take_steps();
  StepLoader::NextIndices coming_steps() const;
  void record(const EffectiveBatch& batch, const StepResult& result, const StepSeconds& seconds);
  void check(const StepResult& result);
  bool is_evaluation_due() const;
  void end_step();
  bool is_save_due(bool best_so_far) const;
  void answer_requests(double next_seconds);
  [[noreturn]] void save_and_stop(const std::string& reason);

  StepResult step(const EffectiveBatch& batch);
  bool find_other_device(const std::string& lack);
  bool move_to(at::Device device, const std::string& lack);

  bool evaluate();
  RunState state(bool complete);
  void save(bool complete);
  void begin_where_it_was_stopped();
  void take_best_model();
  void save_final();
  std::string save_after_lack();
  std::string last_checkpoint() const;
  std::string last_good_checkpoint();
  std::string what_is_lost();
  BatchBudget* generation_budget();

  RunParts parts_;
  const Config& config_;
  Run& run_;
  RunRecord record_;
  Checkpoints checkpoints_;
  SampleOrder order_;
  bool budgets_are_known_ = false;  // from an earlier start
  bool has_come_on_ = false;        // this process: a step, or the evaluation that an earlier one left
  std::map<int64_t, StepCuts> replay_;
  std::optional<UpdateCheck> update_check_;  // until the first update that should move something
  MemoryWatch memory_watch_;
  DataWatch data_watch_;
  std::optional<DeviceLease> other_gpu_;
};

}  // namespace trainer
