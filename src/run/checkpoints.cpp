#include "run/checkpoints.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <system_error>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/memory/host_allocator.h"
#include "trainer/memory/limit.h"
#include "trainer/memory/oom.h"
#include "trainer/run/metric_rows.h"

#include "base/foreign_errors.h"
#include "base/memory_room.h"
#include "base/progress.h"
#include "base/text.h"
#include "config/go_on.h"
#include "formats/optimizer_state.h"

namespace trainer {

namespace fs = std::filesystem;

using Clock = std::chrono::steady_clock;

// Rank 0 writes everything but the optimizer's tensors of other ranks, which write them at the same time into
// the same file. So the checkpoint does not depend on the number of ranks. `state`: of this rank;
// `elsewhere`: of the others. Returns the checkpoint, with its files only on rank 0. Throws on every rank
// when one fails; then the checkpoint does not exist. output_dir must be the same folder for all ranks.
static Checkpoint write_checkpoint(const RunState& state, const TensorsElsewhere& elsewhere,
                                   const Artefacts& artefacts, const std::filesystem::path& output_dir,
                                   const Ranks& ranks) {
  const int64_t step = state.trainer_state.global_step;
  std::optional<CheckpointWriter> writer;
  const auto on_all = [&](const std::function<std::string()>& work) {
    return run_on_all_ranks(ranks, work, Channel::checkpoints);
  };
  const std::vector<std::string> notes = on_all([&] {
    if (!ranks.is_first()) return std::string();
    writer.emplace(output_dir, step);
    state.write(artefacts, writer->directory(), elsewhere);
    return writer->directory().string();
  });
  if (!ranks.alone()) {
    run_on_all_ranks(
        ranks,
        [&] {
          if (!ranks.is_first()) state.fill(notes.front());
        },
        Channel::checkpoints);
  }
  Checkpoint written{checkpoint_path(output_dir, step), step, {}};
  on_all([&] {
    if (ranks.is_first()) written = writer->commit();
    return std::string();
  });
  return written;
}

Checkpoints::Checkpoints(RunParts& parts, const RunProgress& progress, const Resumption& start)
    : parts_(parts), progress_(progress), config_(parts.resolved), output_(parts.output) {
  learn_elsewhere();
  if (!start.checkpoint) return;
  last_ = resumed_from_ = *start.checkpoint;
  last_step_ = resumed_step_ = start.position.step;
  // The step before the resumed one, or the last one before that with finite numbers.
  if (const int64_t good = last_step_ - start.position.bad_steps_in_a_row - 1; good >= 0) mark_good(good);
  // Its row was written to metrics.jsonl after the checkpoint recorded the size of that file.
  if (checkpoint_path(output_.directory(), last_step_) == last_)
    output_.write(save_row(last_step_, last_, parts.prepared.artefacts.weights(parts.model()).bytes(), 0));
}

Checkpoints::~Checkpoints() {
  try {
    wait();
  } catch (const std::exception& error) {
    log::warning(error.what());
  }
}

// Learns which of the optimizer's tensors other ranks have.
void Checkpoints::learn_elsewhere() {
  const Trainer& trainer = parts_.trainer;
  if (trainer.owners().empty()) return;
  const std::vector<std::string> notes =
      parts_.ranks.all_gather(layout_note(trainer.optimizer_state().tensors), Channel::phases);
  for (size_t rank = 1; rank < notes.size(); rank++) elsewhere_.merge(layout_in(notes[rank]));
}

// Returns the current state of the run; its tensors are the run's own, not copies. A rank other than 0 has
// only its part of the optimizer's state, and what the others do not have of the trained weights.
RunState Checkpoints::state(bool complete) {
  RunState state;
  if (!parts_.ranks.is_first()) {
    state.trainer_state.global_step = progress_.position.step;
    for (const TrainedParameter& parameter : parts_.trainer.parameters()) {
      const auto owner = parts_.trainer.sharded().find(parameter.name);
      if (owner != parts_.trainer.sharded().end() && owner->second == parts_.ranks.rank())
        state.weights.tensors[parameter.name] = parameter.value.detach();
    }
    if (complete && !parts_.trainer.owners().empty()) state.optimizer = parts_.trainer.optimizer_state();
    return state;
  }
  state.weights = parts_.prepared.artefacts.weights(parts_.model());
  state.trainer_state = progress_.to_trainer_state(output_.directory());
  if (!complete) return state;
  state.optimizer = parts_.trainer.optimizer_state();
  state.position = progress_.to_position(output_.metrics_bytes(), parts_.learned_budgets());
  return state;
}

void Checkpoints::check_space() { warn_of_lack_of_space(state(!config_.save.weights_only).bytes()); }

void Checkpoints::warn_of_lack_of_space(int64_t bytes) const {
  if (!parts_.ranks.is_first()) return;
  try {
    const std::string lack = lack_of_space(output_.directory(), bytes);
    if (!lack.empty()) log::warning(lack);
  } catch (const FormatError& error) {
    log::debug(error.what());
  }
}

void Checkpoints::save(bool complete) {
  wait();  // the row of the previous one comes first
  const RunState now = state(complete);
  const int64_t step = now.trainer_state.global_step, bytes = now.weights.bytes();
  const std::string path = checkpoint_path(output_.directory(), step);
  const Clock::time_point begin = Clock::now();
  last_time_ = begin;
  if (std::optional<RunState> host = copy(now); host && begin_writing(std::move(*host))) {
    output_.write(save_row(step, path, bytes, seconds_since(begin)));
    return;
  }
  const Outcome outcome = write(now, good_step_);
  if (outcome.checkpoint) output_.write(save_row(step, path, bytes, outcome.seconds));
  take(outcome);
}

bool Checkpoints::begin_writing(RunState state) {
  const auto mine = std::make_shared<RunState>(std::move(state));
  if (!is_room_for_threads(1)) return false;
  try {
    pending_ = std::async(std::launch::async,
                          [this, mine, good = good_step_] { return write(std::move(*mine), good); });
    return true;
  } catch (const std::system_error&) {
    log::warning("no thread could be started to write the checkpoint (see ulimit -u); the step waits for it");
    return false;
  }
}

std::optional<std::string> Checkpoints::save_now(bool complete) {
  wait();
  const RunState now = state(complete);
  const Outcome outcome = write(now, good_step_);
  if (outcome.checkpoint)
    output_.write(save_row(outcome.step, outcome.checkpoint->path, now.weights.bytes(), outcome.seconds));
  take(outcome);
  return outcome.checkpoint ? std::nullopt : std::optional(outcome.problem);
}

std::string Checkpoints::last_text() const {
  if (last_.empty()) return "There is no checkpoint of an earlier step.";
  const std::string text = concat("The last checkpoint is ", last_.string(), ".");
  return fs::exists(last_ / kOptimizerFile)
             ? concat(text, " To go on from there: ", go_on_command(config_, output_.directory()), ".")
             : concat(text, " It holds the weights only (save.weights_only), so no run can go on from it.");
}

// Skips checkpoints that were written after the weights went bad.
std::string Checkpoints::last_good_text() {
  wait();
  const int64_t good_step = good_step_.value_or(-1);
  fs::path good;
  if (resumed_step_ <= good_step) good = resumed_from_;
  for (const int64_t step : checkpoint_steps(output_.directory()))
    if (step <= good_step) good = checkpoint_path(output_.directory(), step);
  if (!good.empty()) {
    return concat("The last checkpoint that is known to be good is ", good.string(),
                  "; resume=", good.string(), " continues from it.");
  }
  if (last_.empty()) return "There is no checkpoint.";
  return concat("No checkpoint is known to be good: no step succeeded after the last one, ", last_.string(),
                ".");
}

void Checkpoints::look() {
  if (pending_.valid() && pending_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) wait();
}

void Checkpoints::wait() {
  if (pending_.valid()) take(pending_.get());
}

double Checkpoints::minutes_since_last() const { return seconds_since(last_time_) / 60; }

// A copy must not take the memory that a step will need. With a limit it may use what is free at the run's
// peak; without one, half of the machine's free memory. Where memory is so short that something is offloaded,
// there is no copy.
bool Checkpoints::has_room(int64_t bytes) const {
  const HostMemory memory = host_memory();
  const int64_t planned_peak = parts_.plan.known() ? parts_.plan.plan.peak() : 0;
  if (parts_.device.is_cpu() && memory.limit > 0 &&
      std::max(memory.peak, planned_peak) + bytes > memory.limit)
    return false;
  return free_memory(c10::kCPU) / 2 > bytes;
}

std::optional<RunState> Checkpoints::copy(const RunState& state) const {
  std::optional<RunState> host;
  if (!config_.save.async || config_.memory.offload.any() || !has_room(state.bytes())) return host;
  if (catch_oom([&] { host = state.copied_to_host(); })) host.reset();
  return host;
}

Checkpoints::Outcome Checkpoints::write(RunState state, std::optional<int64_t> good_step) const {
  const Clock::time_point begin = Clock::now();
  Outcome outcome;
  outcome.step = state.trainer_state.global_step;
  try {
    outcome.checkpoint =
        write_checkpoint(state, elsewhere_, parts_.prepared.artefacts, output_.directory(), parts_.ranks);
  } catch (const std::exception& error) {
    outcome.problem = is_oom(error) ? oom_message(error) : first_line(own_words(error));
  }
  outcome.seconds = seconds_since(begin);
  if (!outcome.checkpoint || !parts_.ranks.is_first()) return outcome;
  if (config_.training.load_best_model_at_end) outcome.best_step = state.trainer_state.best_global_step;
  limit(good_step, outcome);
  return outcome;
}

void Checkpoints::limit(std::optional<int64_t> good_step, Outcome& outcome) const {
  outcome.keeps_good = false;  // removal is tried again after the next save
  try {
    outcome.keeps_good = limit_checkpoints(output_.directory(), config_.save.total_limit,
                                           {outcome.best_step, good_step, outcome.step});
  } catch (const std::exception& error) {
    outcome.litter = own_words(error);
  }
}

void Checkpoints::mark_good(int64_t step) {
  good_step_ = step;
  if (!parts_.ranks.is_first()) return;
  if (pending_.valid() || !written_.keeps_good || step < written_.step) return;
  limit(good_step_, written_);
  if (!written_.litter.empty()) log::warning(concat("an old checkpoint stays: ", written_.litter));
}

void Checkpoints::take(const Outcome& outcome) {
  const fs::path path = checkpoint_path(output_.directory(), outcome.step);
  if (!outcome.checkpoint) {
    output_.write({"save_failed", {{"step", outcome.step}, {"path", path}, {"message", outcome.problem}}});
    log::warning(concat(path.string(), " is not saved: ", outcome.problem,
                        "; the run continues and tries again at the next interval. ",
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
  warn_of_lack_of_space(outcome.checkpoint->bytes());
}

}  // namespace trainer
