// The checkpoints that a run writes on the way: in the background where there is room for a copy, one at a
// time. One that cannot be written costs a warning; the run continues.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <future>
#include <optional>
#include <string>

#include "trainer/config/config.h"
#include "trainer/formats/checkpoint.h"
#include "trainer/run/output_directory.h"
#include "trainer/run/run_state.h"

#include "run/resume.h"
#include "run/run_parts.h"
#include "run/run_progress.h"

namespace trainer {

class Checkpoints {
 public:
  // All outlive it. `start`: where the run resumes is its last checkpoint so far.
  Checkpoints(RunParts& parts, const RunProgress& progress, const Resumption& start = {});
  ~Checkpoints();  // waits for the one that is being written
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  // Warns when the file system has no room for the next one.
  void check_space();

  // Copies the state of the run and lets it be written, or writes it. complete: a run can resume from it;
  // otherwise it has the weights only.
  void save(bool complete);
  // Writes it at once, whatever the configuration says. Why it is not there, if so.
  std::optional<std::string> save_now(bool complete);

  // The step after this one succeeded: a checkpoint of it, and those before, have good weights. One of them
  // stays until a newer one is known to be good.
  void mark_good(int64_t step);

  // To be called between steps: logs what has become of the one that was being written. wait: until it is.
  void look();
  void wait();

  // The last one that is whole; "" and 0: none.
  const std::filesystem::path& last() const { return last_; }
  // Sentences for the end of a run: the last one, and the last one that is known to be good.
  std::string last_text() const;
  std::string last_good_text();
  int64_t last_step() const { return last_step_; }
  double minutes_since_last() const;
  // How long it took to write it.
  double last_seconds() const { return last_seconds_; }

 private:
  struct Outcome {
    int64_t step = 0;
    std::optional<Checkpoint> checkpoint;
    std::string problem, litter;  // why there is none; what could not be removed
    std::optional<int64_t> best_step;
    bool keeps_good = false;  // beyond save.total_limit
    double seconds = 0;
  };

  void warn_of_lack_of_space(int64_t bytes) const;
  RunState state(bool complete);
  bool has_room(int64_t bytes) const;
  std::optional<RunState> copy(const RunState& state) const;
  // False: there is no thread for it.
  bool begin_writing(RunState state);
  Outcome write(RunState state, std::optional<int64_t> good_step) const;
  void limit(std::optional<int64_t> good_step, Outcome& outcome) const;
  void take(const Outcome& outcome);

  RunParts& parts_;
  const RunProgress& progress_;
  const Config& config_;
  OutputDirectory& output_;
  std::filesystem::path resumed_from_;  // "": the run began at its beginning
  int64_t resumed_step_ = 0;
  std::future<Outcome> pending_;
  std::filesystem::path last_;
  int64_t last_step_ = 0;
  std::optional<int64_t> good_step_;
  Outcome written_;  // the last one that is whole
  double last_seconds_ = 0;
  std::chrono::steady_clock::time_point last_time_ = std::chrono::steady_clock::now();
};

}  // namespace trainer
