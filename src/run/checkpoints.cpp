#include "run/checkpoints.h"

#include <algorithm>
#include <memory>
#include <system_error>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/memory/host_allocator.h"
#include "trainer/memory/limit.h"
#include "trainer/memory/oom.h"
#include "trainer/run/progress.h"

#include "run/seconds_since.h"

namespace trainer {
namespace fs = std::filesystem;

using Clock = std::chrono::steady_clock;

Checkpoints::Checkpoints(const Config& config, Run& run, const Artefacts& artefacts, int64_t planned_peak)
    : config_(config), run_(run), artefacts_(artefacts), planned_peak_(planned_peak) {}

Checkpoints::~Checkpoints() {
  try {
    wait();
  } catch (const std::exception& error) {
    log::warning(error.what());
  }
}

void Checkpoints::begin_at(const fs::path& checkpoint, int64_t step) {
  last_ = checkpoint;
  last_step_ = step;
}

void Checkpoints::check_space(int64_t bytes) const {
  try {
    const std::string lack = lack_of_space(run_.directory(), bytes);
    if (!lack.empty()) log::warning(lack);
  } catch (const FormatError& error) {
    log::debug(error.what());
  }
}

void Checkpoints::save(const RunState& state, c10::Device device) {
  wait();
  const int64_t step = state.trainer_state.global_step, bytes = state.weights.bytes();
  const std::string path = checkpoint_path(run_.directory(), step);
  const Clock::time_point begin = Clock::now();
  last_time_ = begin;
  if (std::optional<RunState> host = copy(state, device); host && begin_writing(std::move(*host))) {
    run_.write(save_row(step, path, bytes, seconds_since(begin)));
    return;
  }
  const Outcome outcome = write(state, good_step_);
  if (outcome.checkpoint) run_.write(save_row(step, path, bytes, outcome.seconds));
  take(outcome);
}

bool Checkpoints::begin_writing(RunState state) {
  const auto mine = std::make_shared<RunState>(std::move(state));
  try {
    pending_ = std::async(std::launch::async,
                          [this, mine, good = good_step_] { return write(std::move(*mine), good); });
    return true;
  } catch (const std::system_error&) {
    log::warning(
        "the system gives no thread to write the checkpoint in (see ulimit -u); the step waits for it");
    return false;
  }
}

std::string Checkpoints::save_now(const RunState& state) {
  wait();
  const Outcome outcome = write(state, good_step_);
  if (outcome.checkpoint)
    run_.write(save_row(outcome.step, outcome.checkpoint->path, state.weights.bytes(), outcome.seconds));
  take(outcome);
  return outcome.problem;
}

void Checkpoints::look() {
  if (pending_.valid() && pending_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) wait();
}

void Checkpoints::wait() {
  if (pending_.valid()) take(pending_.get());
}

double Checkpoints::minutes_since_last() const { return seconds_since(last_time_) / 60; }

// A copy must not take what a step will need: with a limit, what is free at the run's peak; without one, half
// of what the machine has left.
bool Checkpoints::has_room(int64_t bytes, c10::Device device) const {
  const HostMemory memory = host_memory();
  if (device.is_cpu() && memory.limit > 0 && std::max(memory.peak, planned_peak_) + bytes > memory.limit)
    return false;
  return free_memory(c10::kCPU) / 2 > bytes;
}

std::optional<RunState> Checkpoints::copy(const RunState& state, c10::Device device) const {
  std::optional<RunState> host;
  if (!config_.save.async || !has_room(state.bytes(), device)) return host;
  if (catch_oom([&] { host = state.copied_to_host(); })) host.reset();
  return host;
}

Checkpoints::Outcome Checkpoints::write(RunState state, std::optional<int64_t> good_step) const {
  const Clock::time_point begin = Clock::now();
  Outcome outcome;
  outcome.step = state.trainer_state.global_step;
  try {
    CheckpointWriter writer(run_.directory(), outcome.step);
    state.write(artefacts_, writer.directory());
    outcome.checkpoint = writer.commit();
  } catch (const std::exception& error) {
    outcome.problem = error.what();
    outcome.problem = outcome.problem.substr(0, outcome.problem.find('\n'));
  }
  outcome.seconds = seconds_since(begin);
  if (!outcome.checkpoint) return outcome;
  if (config_.training.load_best_model_at_end) outcome.best_step = state.trainer_state.best_global_step;
  limit(good_step, outcome);
  return outcome;
}

void Checkpoints::limit(std::optional<int64_t> good_step, Outcome& outcome) const {
  outcome.keeps_good = false;  // what cannot be removed now is tried again after the next save
  try {
    outcome.keeps_good = limit_checkpoints(run_.directory(), config_.save.total_limit,
                                           {outcome.best_step, good_step, outcome.step});
  } catch (const std::exception& error) {
    outcome.litter = error.what();
  }
}

void Checkpoints::went_well_after(int64_t step) {
  good_step_ = step;
  if (pending_.valid() || !written_.keeps_good || step < written_.step) return;
  limit(good_step_, written_);
  if (!written_.litter.empty()) log::warning(concat("an old checkpoint stays: ", written_.litter));
}

void Checkpoints::take(const Outcome& outcome) {
  const fs::path path = checkpoint_path(run_.directory(), outcome.step);
  if (!outcome.checkpoint) {
    run_.write({"save_failed", {{"step", outcome.step}, {"path", path}, {"message", outcome.problem}}});
    log::warning(concat(path.string(), " is not saved: ", outcome.problem,
                        "; the run goes on and tries again at the next interval. ",
                        last_.empty() ? "There is no earlier checkpoint"
                                      : concat("The last checkpoint is ", last_.string())));
    return;
  }
  last_ = path;
  last_step_ = outcome.step;
  written_ = outcome;
  last_seconds_ = outcome.seconds;
  log::info(concat("saved ", path.string(), "  ", bytes_string(outcome.checkpoint->bytes()), "  in ",
                   duration_string(outcome.seconds)));
  if (!outcome.litter.empty()) log::warning(concat("an old checkpoint stays: ", outcome.litter));
  check_space(outcome.checkpoint->bytes());
}

}  // namespace trainer
