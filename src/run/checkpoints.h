// The checkpoints that a run writes while it goes on: in the background where there is room for a copy, one
// at a time. One that cannot be written costs a warning; the run goes on.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <future>
#include <optional>
#include <string>

#include <c10/core/Device.h>

#include "trainer/config/config.h"
#include "trainer/formats/checkpoint.h"
#include "trainer/run/artefacts.h"
#include "trainer/run/run.h"
#include "trainer/run/run_state.h"

namespace trainer {

class Checkpoints {
 public:
  // All outlive it. planned_peak: the most that the run will take on its device, as far as that is known.
  Checkpoints(const Config& config, Run& run, const Artefacts& artefacts, int64_t planned_peak);
  ~Checkpoints();  // waits for the one that is being written
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  // One that is there when the run begins: it goes on from it.
  void begin_at(const std::filesystem::path& checkpoint, int64_t step);

  // The last step that another went well after; none: not known.
  std::optional<int64_t> good_step() const { return good_step_; }

  // Warns when the file system has no room for the next one, of so many bytes.
  void check_space(int64_t bytes) const;

  // Copies the state and lets it be written, or writes it. `state` is of the run itself, on `device`.
  void save(const RunState& state, c10::Device device);
  // Writes it, whatever the configuration says. "", or why it is not there.
  std::string save_now(const RunState& state);

  // A step went well after this one: a checkpoint of it, and those before, have good weights. One of them
  // stays until a newer one is known to be good.
  void went_well_after(int64_t step);

  // To be called between steps: tells what has become of the one that was being written. wait: until it is.
  void look();
  void wait();

  // The last one that is whole; "" and 0: none.
  const std::filesystem::path& last() const { return last_; }
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

  bool has_room(int64_t bytes, c10::Device device) const;
  std::optional<RunState> copy(const RunState& state, c10::Device device) const;
  // False: there is no thread for it.
  bool begin_writing(RunState state);
  Outcome write(RunState state, std::optional<int64_t> good_step) const;
  void limit(std::optional<int64_t> good_step, Outcome& outcome) const;
  void take(const Outcome& outcome);

  const Config& config_;
  Run& run_;
  const Artefacts& artefacts_;
  int64_t planned_peak_;
  std::future<Outcome> pending_;
  std::filesystem::path last_;
  int64_t last_step_ = 0;
  std::optional<int64_t> good_step_;
  Outcome written_;  // the last one that is whole
  double last_seconds_ = 0;
  std::chrono::steady_clock::time_point last_time_ = std::chrono::steady_clock::now();
};

}  // namespace trainer
