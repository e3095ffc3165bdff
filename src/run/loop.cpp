#include "run/loop.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <tuple>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/stop_signals.h"
#include "trainer/base/strings.h"
#include "trainer/memory/oom.h"
#include "trainer/memory/summary.h"
#include "trainer/run/metric_rows.h"

#include "base/progress.h"
#include "base/text.h"
#include "config/go_on.h"
#include "memory/gpu_graph.h"
#include "run/save_result.h"
#include "run/saved_splits.h"

namespace trainer {
namespace {

using LoopClock = std::chrono::steady_clock;

// A recovery as other ranks tell of it: its line, and the kind and values of its row.
using RecoveryNote = std::tuple<std::string, std::string, nlohmann::ordered_json>;

// Writes the answers of an evaluation to OUT/predictions/step-STEP.jsonl and logs the first `show` with their
// targets. If the file cannot be written (disk full), a warning is logged and the run continues.
void keep_predictions(const Predictions& predictions, const std::filesystem::path& output_dir, int64_t step,
                      int64_t show) {
  const std::filesystem::path file = output_dir / "predictions" / concat("step-", step, ".jsonl");
  for (const std::string& line : predictions.lines(show)) log::info(line);
  try {
    make_directories(file.parent_path());
    predictions.write(file);
    log::info(concat("all ", grouped(std::ssize(predictions.rows)), " answers: ", file.string()));
  } catch (const FormatError& e) {
    log::warning(concat("predictions are not written: ", e.what()));
  }
}

// On the CPU it can take minutes, and without a limit nothing there runs out of memory early.
bool rehearses(const Config& config, c10::DeviceType device) {
  return config.memory.rehearse.of(device != c10::kCPU || !config.memory.limit.empty());
}

}  // namespace

Loop::Loop(RunParts& parts, const Resumption& start, const TimeLimit& time_limit)
    : parts_(parts),
      config_(parts.resolved),
      output_(parts.output),
      time_limit_(time_limit),
      progress_(parts.resolved, parts.length, start.position, start.history, parts.ranks.is_first()),
      checkpoints_(parts, progress_, start),
      memory_(parts, progress_, checkpoints_, /*after_move=*/[this] {
        if (update_check_) update_check_.emplace(parts_.model());  // it compares on one device
      }) {
  if (!config_.training.replay_cuts.empty()) replay_ = read_step_cuts(config_.training.replay_cuts);
  parts_.trainer.on_recovery([this](const Recovery& recovery) {
    const MetricRow row = recovery_row(progress_.position, recovery);
    output_.write(row);
    if (!parts_.ranks.is_first()) recoveries_.push_back({recovery.line(), row.kind, row.values});
  });
  // The earlier start that had this evaluation pending still had evaluation on.
  if (parts.eval_data() == nullptr || config_.training.eval_strategy == IntervalStrategy::no)
    progress_.position.evaluation_due = false;
  if (start.checkpoint) {
    // All ranks rehearse, or none.
    const double known = parts_.restore_budgets(start.position) ? 1 : 0;
    budgets_are_known_ =
        all_reduce(parts_.ranks, {known}).front() == static_cast<double>(parts_.ranks.count());
  } else {
    update_check_.emplace(parts_.model());
  }
}

void Loop::go() {
  try {
    memory_.guard([this] { train(); });
  } catch (const LostRank& error) {
    checkpoints_.wait();
    throw LostRank(
        concat(error.what(), ". ", checkpoints_.last_text(), " The number of ranks may be another one"));
  } catch (const std::exception& error) {
    if (!is_device_fault(error)) throw;
    throw DeviceFault(device_fault_message(error.what()));
  }
}

void Loop::train() {
  if (!progress_.is_over() || progress_.position.evaluation_due) {
    if (rehearses(config_, parts_.device.type()) && !budgets_are_known_) {
      const Progress shown("memory test: largest batch");
      memory_.rehearse();
    }
    take_steps();
  }
  output_.finish();
  {
    const Progress shown("waiting for the checkpoint");
    checkpoints_.wait();
  }
  save_result(parts_, progress_, checkpoints_);
}

void Loop::take_steps() {
  hold_stop_signals();
  if (progress_.position.evaluation_due) {  // the run was stopped before this evaluation
    evaluate_and_save();
    made_progress_ = true;
    if (progress_.is_over()) return;
  }
  StepLoader loader(
      parts_.train, coming_steps(),
      {config_.training.num_workers, config_.data.prefetch, {parts_.ranks.rank(), parts_.ranks.count()}});
  if (config_.save.strategy != IntervalStrategy::no) checkpoints_.check_space();
  while (!progress_.is_over()) {
    const LoopClock::time_point begin = LoopClock::now();
    auto shown = step_progress();
    const EffectiveBatch batch = loader.next();
    const double data_wait = seconds_since(begin);
    const StepResult result = step(batch);
    shown.reset();
    made_progress_ = true;
    parts_.lease.start.reset();  // its memory is taken: the next run may start on this GPU
    progress_.advance(batch);
    log(batch, result, {seconds_since(begin), data_wait});
    checkpoints_.look();
    check(result);
    const Decision next = decide(Moment::after_step, seconds_since(begin));
    progress_.position.evaluation_due = next.evaluate;  // saved with the run, if it stops now
    handle_stop_requests(next);
    evaluate_and_save();
  }
}

// The first step may take long, and shows itself.
std::unique_ptr<Progress> Loop::step_progress() const {
  std::string what = concat("step ", progress_.position.step + 1, "/", progress_.length().total_steps);
  if (made_progress_) return std::make_unique<StepProgress>(std::move(what));
  return std::make_unique<Progress>(std::move(what));
}

// Returns the samples of the remaining steps, step by step.
StepLoader::NextIndices Loop::coming_steps() const {
  return [this, samples_seen = progress_.position.samples_seen,
          left = progress_.length().total_steps - progress_.position.step]() mutable {
    if (left-- <= 0) return StepIndices();
    StepIndices next(parts_.order.step_at(samples_seen, config_.effective_batch_size()),
                     parts_.order.epoch_at(samples_seen));
    samples_seen += static_cast<int64_t>(next.indices.size());
    return next;
  };
}

StepResult Loop::step(const EffectiveBatch& batch) {
  const auto replayed = replay_.find(progress_.position.step + 1);
  return memory_.step(batch, replayed != replay_.end() ? &replayed->second : nullptr);
}

void Loop::log(const EffectiveBatch& batch, const StepResult& result, const StepSeconds& seconds) {
  const RunPosition& position = progress_.position;
  MetricRow row = train_row(position, batch, result, seconds, parts_.device);
  progress_.numerics.add(position.step, result, row, [&] {
    std::vector<std::string> origins;
    const int64_t first = position.samples_seen - batch.rows();
    for (const int64_t index : parts_.order.step_at(first, config_.effective_batch_size()))
      origins.push_back(parts_.train.origin(index));
    return origins;
  });
  output_.write(row);
  progress_.history.add_step(position, result);
  if (const std::string slow = data_watch_.add(seconds, config_); !slow.empty()) log::warning(slow);
  const MemorySummary memory = memory_summary(parts_.device);
  memory_watch_.add(position, memory, output_);
  if (position.step > 1 || !parts_.plan.known() || parts_.has_moved) return;
  const auto& highest = result.highest_peak;
  const int64_t peak = highest ? highest->peak : memory.peak;
  const std::optional<int64_t> rank = highest ? std::optional(highest->rank) : std::nullopt;
  (parts_.plan.exceeds_plan(peak) ? log::warning : log::info)(parts_.plan.compared(peak, rank));
  output_.write(parts_.plan.row(position.step, peak, rank));
}

// Ends a run whose numbers went bad, and checks once that updates change the trained tensors and no others.
void Loop::check(const StepResult& result) {
  const int64_t step = progress_.position.step;
  if (const auto reason = progress_.numerics.reason_to_end()) {
    throw NumericsError(concat("step ", step, ": ", *reason, ". ", checkpoints_.last_good_text(),
                               " Lower optimizer.learning_rate, add optimizer.warmup_steps, use "
                               "model.dtype=fp32, or fix the samples."));
  }
  if (result.skipped) return;
  checkpoints_.mark_good(step - 1);
  if (!update_check_ || result.learning_rate <= 0 || result.grad_norm <= 0) return;
  RetryOptions retry;
  retry.device = parts_.device;
  log::info(retry_on_oom([&] { return update_check_->after_update(result.learning_rate); }, retry));
  update_check_.reset();
}

// The only place where signals, clocks and intervals decide what a run does next. next_seconds: until it
// decides again.
Loop::Decision Loop::decide(Moment moment, double next_seconds) {
  Decision decision;
  if (moment == Moment::after_evaluation) {
    decision.save = is_save_due();
    return agreed(decision);
  }
  if (moment == Moment::after_step) decision.evaluate = is_evaluation_due();
  const bool ends_now = progress_.is_over() && moment == Moment::after_step && !decision.evaluate;
  if (ends_now) return decision;  // the result is saved at once
  decision.stop = stop_reason(next_seconds);
  decision.save_on_request = !decision.stop && take_save_request();
  return agreed(decision);
}

// Returns what all ranks do: a stop or a save that any of them is asked for, and what rank 0's clock says.
// Rank 0 also learns which of the others ran out of memory.
Loop::Decision Loop::agreed(const Decision& own) {
  if (parts_.ranks.alone()) return own;
  using Json = nlohmann::ordered_json;
  const Json note{{"save", own.save},
                  {"request", own.save_on_request},
                  {"stop", own.stop.value_or("")},
                  {"recoveries", std::exchange(recoveries_, Json::array())}};
  const std::vector<std::string> notes = parts_.ranks.all_gather(note.dump());
  Decision decision = own;
  decision.stop.reset();
  for (size_t rank = 0; rank < notes.size(); rank++) {
    const Json theirs = Json::parse(notes[rank]);
    if (rank == 0) decision.save = theirs.at("save").get<bool>();
    decision.save_on_request = decision.save_on_request || theirs.at("request").get<bool>();
    const auto stop = theirs.at("stop").get<std::string>();
    if (!decision.stop && !stop.empty()) decision.stop = stop;
    if (rank > 0 && parts_.ranks.is_first()) log_recoveries(rank, theirs.at("recoveries"));
  }
  if (decision.stop) decision.save_on_request = false;
  return decision;
}

void Loop::log_recoveries(size_t rank, const nlohmann::ordered_json& recoveries) {
  for (const auto& [line, kind, values] : recoveries.get<std::vector<RecoveryNote>>()) {
    log::warning(concat("rank ", rank, ": ", line));
    MetricRow row{kind, values};
    row.values["rank"] = rank;
    output_.write(row);
  }
}

std::optional<std::string> Loop::stop_reason(double next_seconds) const {
  if (std::string signal = stop_signal(); !signal.empty()) return signal;
  if (made_progress_ && time_limit_.is_up(next_seconds + checkpoints_.last_seconds()))
    return concat("training.max_hours: ", config_.training.max_hours);
  return std::nullopt;
}

bool Loop::is_evaluation_due() const {
  const TrainingConfig& training = config_.training;
  if (!parts_.eval || training.eval_strategy == IntervalStrategy::no) return false;
  return progress_.is_last_step() ||
         is_due(training.eval_strategy, training.eval_steps, progress_.position, progress_.length());
}

bool Loop::is_save_due() const {
  const SaveConfig& save = config_.save;
  if (is_best_ && config_.training.load_best_model_at_end) return true;
  // After the last step the result is saved anyway; the checkpoint lets a longer run resume.
  if (progress_.is_over()) return save.strategy != IntervalStrategy::no && !save.weights_only;
  const bool is_late = save.minutes > 0 && checkpoints_.minutes_since_last() >= save.minutes;
  return is_late || is_due(save.strategy, save.steps, progress_.position, progress_.length());
}

// Called between steps, and between the parts of an evaluation, so that a run does not have to finish a long
// evaluation before it stops.
void Loop::handle_stop_requests(const Decision& decision) {
  checkpoints_.look();
  if (decision.stop) save_and_stop(*decision.stop);
  if (!decision.save_on_request) return;
  log::info("SIGUSR1: the run saves its state and continues");
  checkpoints_.save(/*complete=*/true);
}

void Loop::evaluate_and_save() {
  is_best_ = false;
  if (progress_.position.evaluation_due) evaluate();
  progress_.position.evaluation_due = false;
  if (decide(Moment::after_evaluation).save) checkpoints_.save(!config_.save.weights_only);
}

void Loop::evaluate() {
  const Progress shown("evaluation");
  const LoopClock::time_point begin = LoopClock::now();
  std::optional<Predictions> predictions;
  const EvaluationResult result = evaluate_data(predictions);
  const int64_t step = progress_.position.step;
  const MetricRow row =
      evaluation_row(progress_.position, result, predictions ? &*predictions : nullptr, seconds_since(begin));
  output_.write(row);
  progress_.history.add_evaluation(row);
  if (predictions && parts_.ranks.is_first()) {
    keep_predictions(*predictions, output_.directory(), step, config_.evaluation.show);
    output_.show(*predictions, step);
  }
  is_best_ = progress_.best.add(row);
  if (is_best_) output_.write_best(row);
  if (progress_.best.patience_is_over()) {
    log::info(concat("stops early: ", progress_.best.metric(), " has not improved in ",
                     config_.training.early_stopping_patience, " evaluations"));
  }
}

// One rank alone looks for signals between the parts of an evaluation and stops at once. Of several ranks,
// one that is asked to stop ends its part, and then all stop.
EvaluationResult Loop::evaluate_data(std::optional<Predictions>& predictions) {
  const std::function<void()> between = [this] {
    parts_.ranks.alone() ? handle_stop_requests(decide(Moment::within_evaluation))
                         : stop_evaluation_if_asked();
  };
  try {
    EvaluationResult result = parts_.trainer.evaluate(*parts_.eval, between);
    if (parts_.predictor)
      predictions = parts_.predictor->predict(parts_.model(), parts_.device, between, parts_.ranks);
    return result;
  } catch (const Error& error) {
    if (parts_.ranks.alone() || error.code() != ExitCode::interrupted) throw;
    save_and_stop(error.what());
  }
}

void Loop::stop_evaluation_if_asked() const {
  if (const auto reason = stop_reason(0)) throw Error(ExitCode::interrupted, *reason);
}

void Loop::save_and_stop(const std::string& reason) {
  output_.finish();
  const Progress shown("saving the state of the run");
  checkpoints_.wait();
  const int64_t step = progress_.position.step;
  const std::string where =
      concat(reason, ": the run ends after step ", step, " of ", progress_.length().total_steps);
  if (checkpoints_.last_step() < step) {
    if (const auto problem = checkpoints_.save_now(/*complete=*/true))
      throw FormatError(
          concat(where, ", and its state could not be saved: ", *problem, ". ", checkpoints_.last_text()));
  }
  throw Error(ExitCode::interrupted, concat(where, " and is saved in ", checkpoints_.last().string(),
                                            ". To go on: ", go_on_command(config_, output_.directory())));
}

std::string Loop::device_fault_message(const std::string& error) {
  checkpoints_.wait();
  return concat("the GPU reported an error and cannot be used further, so the state of step ",
                progress_.position.step, " is lost. ", checkpoints_.last_text(),
                " If it happens again, CUDA_LAUNCH_BLOCKING=1 in the environment says where",
                has_started_graphs() ? ", and TRAINER_GRAPHS=launched does without CUDA graphs" : "",
                ". The error: ", first_line(error));
}

}  // namespace trainer
