// The steps of a run, with what happens between them.
#pragma once

#include <filesystem>
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

#include "cli/core/memory_watch.h"
#include "cli/core/run_model.h"
#include "cli/core/run_plan.h"

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

  void rehearse();
  void take_steps();
  std::future<EffectiveBatch> load(int64_t samples_seen);
  void advance(const EffectiveBatch& batch);
  void check(const StepResult& result);
  void record(const EffectiveBatch& batch, const StepResult& result, double seconds);
  bool evaluate_if_due();
  Requests requests_after_step();

  StepResult step(const EffectiveBatch& batch);
  bool find_other_device(const std::string& lack);
  bool move_to(at::Device device, const std::string& lack);

  bool is_last() const { return position_.step == parts_.length.total_steps; }
  void evaluate();
  void save_checkpoint();
  void save_final();
  std::string save_after_lack();
  std::string last_checkpoint() const;
  std::string what_is_lost() const;

  RunParts parts_;
  const Config& config_;
  Run& run_;
  SampleOrder order_;
  Position position_;
  std::map<int64_t, StepCuts> replay_;
  std::optional<UpdateCheck> update_check_;  // until the first update that should move something
  MemoryWatch memory_watch_;
  std::filesystem::path last_checkpoint_;
  int64_t last_saved_step_ = 0;
  std::optional<DeviceLease> other_gpu_;
};

}  // namespace trainer
