// The steps of a run, with what happens between them.
#pragma once

#include <future>
#include <map>
#include <optional>
#include <string>

#include "trainer/config/config.h"
#include "trainer/data/batching.h"
#include "trainer/data/dataset.h"
#include "trainer/memory/acquire_device.h"
#include "trainer/observe/run.h"
#include "trainer/training/predictions.h"
#include "trainer/training/progress.h"
#include "trainer/training/trainer.h"
#include "trainer/training/update_check.h"

#include "cli/core/checkpoints.h"
#include "cli/core/memory_watch.h"
#include "cli/core/resume.h"
#include "cli/core/run_model.h"
#include "cli/core/run_plan.h"
#include "cli/core/run_record.h"

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
};

class Loop {
 public:
  explicit Loop(const RunParts& parts);

  // From where the run stands to its end, and saves the result. Throws OutOfMemoryError, when nothing helped,
  // with where the weights of the last step are; NumericsError; DeviceFault.
  void go();

 private:
  // What is asked for between two steps by whatever watches the run.
  struct Requests {
    bool save = false;  // a checkpoint now
    bool stop = false;  // no further step
  };

  // After the last step, also where that is an early one.
  bool is_over() const { return record_.is_last() || record_.best.patience_is_over(); }
  void rehearse();
  void take_steps();
  std::future<EffectiveBatch> load(int64_t samples_seen);
  void check(const StepResult& result);
  void record(const EffectiveBatch& batch, const StepResult& result, double seconds);
  bool evaluate_if_due();
  Requests requests_after_step(bool best_so_far);

  StepResult step(const EffectiveBatch& batch);
  bool find_other_device(const std::string& lack);
  bool move_to(at::Device device, const std::string& lack);

  bool evaluate();
  RunState state();
  void begin_where_it_was_stopped();
  void take_best_model();
  void save_final();
  std::string save_after_lack();
  std::string last_checkpoint() const;
  std::string what_is_lost();
  BatchBudget* generation_budget();

  RunParts parts_;
  const Config& config_;
  Run& run_;
  RunRecord record_;
  Checkpoints checkpoints_;
  SampleOrder order_;
  bool budgets_are_known_ = false;  // from an earlier start
  std::map<int64_t, StepCuts> replay_;
  std::optional<UpdateCheck> update_check_;  // until the first update that should move something
  MemoryWatch memory_watch_;
  std::optional<DeviceLease> other_gpu_;
};

}  // namespace trainer
