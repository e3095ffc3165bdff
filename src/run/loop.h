// The training loop: the steps of a run, and logging, evaluation and saving between them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "trainer/data/step_loader.h"

#include "base/progress.h"
#include "run/checkpoints.h"
#include "run/out_of_memory.h"
#include "run/resume.h"
#include "run/run_parts.h"
#include "run/run_progress.h"
#include "run/watches.h"
#include "training/prepare_model.h"

namespace trainer {

class Loop {
 public:
  // The arguments must outlive it. Model and optimizer already have the state of `start`.
  Loop(RunParts& parts, const Resumption& start, const TimeLimit& time_limit);

  // Trains to the end and saves the result. Throws OutOfMemoryError when nothing helped (it says where the
  // weights of the last step are); NumericsError; DeviceFault; Error with ExitCode::interrupted when a signal
  // or training.max_hours ended the run and its state was saved.
  void go();

 private:
  enum class Moment { after_step, within_evaluation, after_evaluation };
  struct Decision {
    std::optional<std::string> stop;  // why the run saves its state and ends
    bool save_on_request = false;
    bool evaluate = false;
    bool save = false;
  };

  void train();
  void take_steps();
  std::unique_ptr<Progress> step_progress() const;
  StepLoader::NextIndices coming_steps() const;
  StepResult step(const EffectiveBatch& batch);
  void log(const EffectiveBatch& batch, const StepResult& result, const StepSeconds& seconds);
  void check(const StepResult& result);
  Decision decide(Moment moment, double next_seconds = 0);
  Decision agreed(const Decision& own);
  void log_recoveries(size_t rank, const nlohmann::ordered_json& recoveries);
  void stop_evaluation_if_asked() const;
  std::optional<std::string> stop_reason(double next_seconds) const;
  bool is_evaluation_due() const;
  bool is_save_due() const;
  void handle_stop_requests(const Decision& decision);
  void evaluate_and_save();
  void evaluate();
  EvaluationResult evaluate_data(std::optional<Predictions>& predictions);
  [[noreturn]] void save_and_stop(const std::string& reason);
  std::string device_fault_message(const std::string& error);

  RunParts& parts_;
  const Config& config_;
  OutputDirectory& output_;
  const TimeLimit& time_limit_;
  RunProgress progress_;
  Checkpoints checkpoints_;
  OutOfMemoryHandler memory_;
  std::map<int64_t, StepCuts> replay_;
  bool budgets_are_known_ = false;           // from an earlier start
  bool made_progress_ = false;               // in this process: a step, or a pending evaluation
  bool is_best_ = false;                     // the evaluation after this step is the best so far
  std::optional<UpdateCheck> update_check_;  // until the first update that should move something
  nlohmann::ordered_json recoveries_ = nlohmann::ordered_json::array();  // not yet known to rank 0
  MemoryWatch memory_watch_;
  DataWatch data_watch_;
};

}  // namespace trainer
