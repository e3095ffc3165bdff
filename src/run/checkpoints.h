// Writes the checkpoints of a run, one at a time, in the background if there is memory for a copy. If one
// cannot be written, a warning is logged and the run continues. With several ranks, all call save(),
// save_now() and check_space() together.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <future>
#include <optional>
#include <string>

#include "trainer/config/config.h"
#include "trainer/formats/checkpoint.h"
#include "trainer/parallel/ranks.h"

#include "run/output_directory.h"
#include "run/resume.h"
#include "run/run_parts.h"
#include "run/run_progress.h"
#include "run/run_state.h"

namespace trainer {

class Checkpoints {
 public:
  // The arguments must outlive it. `start`: the checkpoint that the run resumes from counts as the last one.
  Checkpoints(RunParts& parts, const RunProgress& progress, const Resumption& start = {});
  ~Checkpoints();  // waits for the one that is being written
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  // Warns when the file system has no room for the next one.
  void check_space();

  // Copies the state and writes the copy in the background, or writes it directly. complete: a run can resume
  // from it; otherwise it has only the weights.
  void save(bool complete);
  // Writes it before it returns, regardless of the configuration. Returns why it failed, or nothing.
  std::optional<std::string> save_now(bool complete);

  // The step after `step` succeeded, so checkpoints of `step` and earlier have good weights. One of them is
  // kept until a newer one is known to be good.
  void mark_good(int64_t step);

  // To be called between steps. look() logs the outcome of a background write, if it has ended; wait() waits
  // for it.
  void look();
  void wait();

  // The last complete checkpoint and its step; "" and 0 if there is none.
  const std::filesystem::path& last() const { return last_; }
  // Sentences for the end of a run: which checkpoint is the last, and which is the last known to be good.
  std::string last_text() const;
  std::string last_good_text();
  int64_t last_step() const { return last_step_; }
  double minutes_since_last() const;
  // The seconds that writing the last one took.
  double last_seconds() const { return last_seconds_; }

 private:
  struct Outcome {
    int64_t step = 0;
    std::optional<Checkpoint> checkpoint;
    std::string problem, litter;  // why writing failed; what could not be removed
    std::optional<int64_t> best_step;
    bool keeps_good = false;  // beyond save.total_limit
    double seconds = 0;
  };

  void learn_elsewhere();
  void warn_of_lack_of_space(int64_t bytes) const;
  RunState state(bool complete);
  bool has_room(int64_t bytes) const;
  std::optional<RunState> copy(const RunState& state) const;
  // Returns false if no thread could be started.
  bool begin_writing(RunState state);
  Outcome write(RunState state, std::optional<int64_t> good_step) const;
  void limit(std::optional<int64_t> good_step, Outcome& outcome) const;
  void take(const Outcome& outcome);

  RunParts& parts_;
  const RunProgress& progress_;
  const Config& config_;
  OutputDirectory& output_;
  std::filesystem::path resumed_from_;  // "": the run did not resume
  int64_t resumed_step_ = 0;
  std::future<Outcome> pending_;
  std::filesystem::path last_;
  int64_t last_step_ = 0;
  std::optional<int64_t> good_step_;
  Outcome written_;             // the last complete one
  TensorsElsewhere elsewhere_;  // the tensors of other ranks
  double last_seconds_ = 0;
  std::chrono::steady_clock::time_point last_time_ = std::chrono::steady_clock::now();
};

}  // namespace trainer
