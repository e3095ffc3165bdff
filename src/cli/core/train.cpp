// trainer train: the story of a run.
#include "trainer/cli/train.h"

#include <chrono>
#include <cmath>
#include <future>
#include <map>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/cli/core.h"
#include "trainer/data/batching.h"
#include "trainer/data/dataset.h"
#include "trainer/memory/acquire_device.h"
#include "trainer/memory/device.h"
#include "trainer/memory/limit.h"
#include "trainer/memory/oom.h"
#include "trainer/memory/summary.h"
#include "trainer/observe/run.h"
#include "trainer/text/tokenizer.h"
#include "trainer/training/artefacts.h"
#include "trainer/training/predictions.h"
#include "trainer/training/progress.h"
#include "trainer/training/replay_cuts.h"
#include "trainer/training/trainer.h"
#include "trainer/training/update_check.h"
#include "trainer/training/worst_batch.h"

#include "cli/core/keep_predictions.h"
#include "cli/core/memory_watch.h"
#include "cli/core/open_model.h"
#include "cli/core/run_model.h"
#include "cli/core/run_plan.h"
#include "cli/core/start_block.h"
#include "cli/core/with_clear_errors.h"

namespace trainer {
namespace {

constexpr int64_t kAnswersWhileTraining = 200;  // where evaluation.max_samples is not set

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The steps of a run, with what happens between them.
class Loop {
 public:
  Loop(const Config& config, Run& run, Prepared& prepared, Trainer& trainer, const Dataset& train,
       const Dataset* eval, Predictor* predictor, const RunLength& length, const RunPlan& plan,
       at::Device device)
      : config_(config),
        run_(run),
        prepared_(prepared),
        trainer_(trainer),
        train_(train),
        eval_(eval),
        predictor_(predictor),
        length_(length),
        plan_(plan),
        device_(device),
        order_(train.size(), config.data.shuffle, config.seed) {
    check_.emplace(*prepared.model);
    if (!config.training.replay_cuts.empty()) replay_ = read_step_cuts(config.training.replay_cuts);
    trainer.on_recovery([this](const Recovery& recovery) { run_.write(recovery_row(position_, recovery)); });
  }

  void go() {
    std::string lack;
    try {
      if (config_.memory.rehearse) rehearse();
      take_steps();
      run_.console().finish();
      save_final();
      return;
    } catch (const OutOfMemoryError& error) {
      lack = error.what();
    } catch (const std::exception& error) {
      if (is_device_fault(error)) throw DeviceFault(concat(what_is_lost(), first_line(error.what())));
      if (!is_oom(error)) throw;
      lack = concat("out of memory between steps: ", first_line(error.what()));
    }
    throw OutOfMemoryError(concat(lack, "\n", save_after_lack()));
  }

 private:
  // What would run out of memory late does so now.
  void rehearse() {
    const auto begin = std::chrono::steady_clock::now();
    const bool encoder_decoder = prepared_.model->encoder_decoder();
    const EffectiveBatch batch = worst_batch(config_, encoder_decoder, longest_sample(train_));
    trainer_.rehearse(batch);
    log::info(concat("rehearsal: the largest micro-batches and an update, ", batch.samples.size(),
                     " samples of ", token_count(batch.samples[0], encoder_decoder), " tokens, in ",
                     duration_string(seconds_since(begin)), "; peak ",
                     bytes_string(memory_summary(device_).peak)));
  }

  void take_steps() {
    std::future<EffectiveBatch> next = load(0);
    while (position_.step < length_.total_steps) {
      const auto begin = std::chrono::steady_clock::now();
      const EffectiveBatch batch = next.get();
      const int64_t samples = static_cast<int64_t>(batch.samples.size());
      if (position_.step + 1 < length_.total_steps) next = load(position_.samples_seen + samples);
      const StepResult result = step(batch);
      position_.step++;
      position_.samples_seen += samples;
      position_.epoch = epoch_of(position_.samples_seen, train_.size());
      check_numbers(result);
      if (!moved_ && result.learning_rate > 0 && result.grad_norm > 0) {
        RetryOptions retry;
        retry.device = device_;
        log::info(retry_on_oom([&] { return check_->after_update(result.learning_rate); }, retry));
        check_.reset();
        moved_ = true;
      }
      run_.write(train_row(position_, batch, result, seconds_since(begin), device_));
      memory_watch_.add(position_, memory_summary(device_), run_);
      if (position_.step == 1 && plan_.known()) compare_with_plan();
      const bool last = position_.step == length_.total_steps;
      const bool evaluated =
          is_due(config_.training.eval_strategy, config_.training.eval_steps, position_.step, length_);
      if (eval_ != nullptr && (evaluated || (last && config_.training.eval_strategy != IntervalStrategy::no)))
        evaluate();
      if (!last && is_due(config_.save.strategy, config_.save.steps, position_.step, length_))
        save_checkpoint();
    }
  }

  // On another device where nothing helps on this one.
  StepResult step(const EffectiveBatch& batch) {
    const auto replayed = replay_.find(position_.step + 1);
    for (;;) {
      std::string lack;
      try {
        return trainer_.step(batch, replayed != replay_.end() ? &replayed->second : nullptr);
      } catch (const OutOfMemoryError& error) {
        lack = error.what();
      }
      if (!trainer_.has_whole_weights() || !find_other_device(lack)) throw OutOfMemoryError(lack);
    }
  }

  bool find_other_device(const std::string& lack) {
    if (!device_.is_cuda()) return false;
    if (config_.recovery.try_other_gpus && !other_gpu_) {
      other_gpu_ = acquire_other_gpu(device_, config_.gpu);
      if (other_gpu_ && move_to(other_gpu_->device, lack)) return true;
    }
    return config_.recovery.cpu_fallback && move_to(at::kCPU, lack);
  }

  bool move_to(at::Device device, const std::string& lack) {
    log::warning(lack);
    if (const auto no_room = catch_oom([&] { trainer_.move_to(device); })) {
      log::warning(concat(device.str(), " has no room for the run: ", no_room->numbers()));
      trainer_.move_to(device_);
      return false;
    }
    log::warning(concat("the run goes on on ", describe_device(device), " after step ", position_.step,
                        "; weights, optimizer state and position are those of ", device_.str()));
    Recovery recovery;
    recovery.stage = "device";
    recovery.lack.message = concat(device_.str(), " -> ", device.str());
    run_.write(recovery_row(position_, recovery));
    if (check_) check_.emplace(*prepared_.model);  // it compares on one device
    device_ = device;
    return true;
  }

  void compare_with_plan() {
    const int64_t peak = memory_summary(device_).peak;
    log::info(plan_.compared(peak));
    run_.write(plan_.row(position_.step, peak));
  }

  // A run does not go on, nor save, with weights that NaN has reached.
  void check_numbers(const StepResult& result) const {
    if (std::isfinite(result.loss) && std::isfinite(result.grad_norm)) return;
    throw NumericsError(
        concat("step ", position_.step, ": loss ", result.loss, ", gradient norm ", result.grad_norm,
               "; nothing was saved after it. Lower optimizer.learning_rate, add optimizer.warmup_steps, "
               "or use model.dtype=fp32. Checkpoints of earlier steps, if any, are in ",
               run_.directory().string()));
  }

  // Read and tokenised while the step before it computes.
  std::future<EffectiveBatch> load(int64_t samples_seen) {
    return std::async(std::launch::async,
                      [this, indices = order_.step_at(samples_seen, config_.effective_batch_size())] {
                        return load_effective_batch(train_, indices);
                      });
  }

  void evaluate() {
    const auto begin = std::chrono::steady_clock::now();
    const EvaluationResult result = trainer_.evaluate(*eval_);
    std::optional<Predictions> predictions;
    if (predictor_ != nullptr) {
      predictions = predictor_->predict(*prepared_.model, device_, [this](int64_t done, int64_t total) {
        run_.console().progress("answers", done, total);
      });
    }
    run_.write(
        evaluation_row(position_, result, predictions ? &*predictions : nullptr, seconds_since(begin)));
    if (predictions)
      keep_predictions(*predictions, run_.directory(), position_.step, config_.evaluation.show);
  }

  void save_checkpoint() {
    const auto begin = std::chrono::steady_clock::now();
    int64_t bytes = 0;
    const auto path = prepared_.artefacts.save_checkpoint(*prepared_.model, run_.directory(), position_.step,
                                                          config_.save.total_limit, &bytes);
    last_checkpoint_ = path;
    last_saved_step_ = position_.step;
    run_.write(save_row(position_, path, bytes, seconds_since(begin)));
  }

  // Where the state of the last step is, when memory did not suffice for the next.
  std::string save_after_lack() {
    if (position_.step == 0) return "No step was finished, so there is nothing to save.";
    if (!trainer_.has_whole_weights())
      return concat("The update of step ", position_.step + 1, " was half done and is not saved. ",
                    last_checkpoint());
    if (last_saved_step_ < position_.step) {
      try {
        save_checkpoint();
      } catch (const std::exception& error) {
        return concat("The state of step ", position_.step, " could not be saved: ", first_line(error.what()),
                      ". ", last_checkpoint());
      }
    }
    return concat("The weights of step ", position_.step, ", the last one, are in ",
                  last_checkpoint_.string());
  }

  std::string last_checkpoint() const {
    return last_checkpoint_.empty() ? "There is no checkpoint of an earlier step."
                                    : concat("The last checkpoint is ", last_checkpoint_.string(), ".");
  }

  std::string what_is_lost() const {
    return concat("the GPU reported an error and cannot be used further, so the state of step ",
                  position_.step, " is lost. ", last_checkpoint(),
                  " Start again from there; if it happens again, CUDA_LAUNCH_BLOCKING=1 "
                  "in the environment says where. The error: ");
  }

  void save_final() {
    const auto begin = std::chrono::steady_clock::now();
    const int64_t bytes = prepared_.artefacts.save(*prepared_.model, run_.directory());
    run_.write(save_row(position_, run_.directory(), bytes, seconds_since(begin)));
  }

  const Config& config_;
  Run& run_;
  Prepared& prepared_;
  Trainer& trainer_;
  const Dataset& train_;
  const Dataset* eval_;
  Predictor* predictor_;
  RunLength length_;
  const RunPlan& plan_;
  at::Device device_;
  SampleOrder order_;
  std::optional<UpdateCheck> check_;
  bool moved_ = false;
  Position position_;
  MemoryWatch memory_watch_;
  std::map<int64_t, StepCuts> replay_;
  std::filesystem::path last_checkpoint_;
  int64_t last_saved_step_ = 0;
  std::optional<DeviceLease> other_gpu_;
};

void run_training(const Config& given, const std::vector<MetricSink*>& sinks) {
  Run run = Run::open(given);
  for (MetricSink* sink : sinks) run.add_sink(*sink);
  set_up_cpu(given.training.num_threads);
  const DeviceLease lease = acquire_device(given.device, given.gpu);
  const at::Device device = lease.device;
  if (device.is_cuda()) use_tf32(given.training.tf32);
  MemoryLimit::parse(given.memory.limit).apply(device);
  const auto tokenizer = load_run_tokenizer(given);
  Prepared prepared = prepare_model(given, *tokenizer, device);
  check_vocabulary(*tokenizer, *prepared.model, given.model.path);

  const bool encoder_decoder = prepared.model->encoder_decoder();
  const Dataset train = Dataset::open(given.data.train, given, *tokenizer, encoder_decoder);
  std::optional<Dataset> eval;
  if (!given.data.eval.empty()) eval = Dataset::open(given.data.eval, given, *tokenizer, encoder_decoder);

  const PlanTarget target{device.type(), prepared.model->dtype(), tokenizer->vocab_size(),
                          longest_sample(train)};
  const RunPlan plan = plan_run(given, target, device);
  const Config& config = plan.config;
  std::optional<Predictor> predictor;
  if (config.evaluation.generate) {
    predictor.emplace(*eval, *tokenizer, config, generation_config(config.model.path, *tokenizer),
                      kAnswersWhileTraining);
  }
  const RunLength length = run_length(config, train.size());

  Trainer trainer(config, *prepared.model, device, length.total_steps);
  run.begin();
  empty_cache(device);  // of what loading needed
  reset_peak_memory(device);
  show_start(run, config, prepared.artefacts, *prepared.model, plan, train, eval ? &*eval : nullptr, length,
             device);
  Loop(config, run, prepared, trainer, train, eval ? &*eval : nullptr, predictor ? &*predictor : nullptr,
       length, plan, device)
      .go();
  log::info(concat("memory: ", memory_summary(device).text()));
  log::info(concat("done: ", run.directory().string()));
}

}  // namespace

void train(const Config& config, const std::vector<MetricSink*>& sinks) {
  with_clear_errors(
      "The model did not fit. What helps: a larger memory.limit, if the device has it; lora: {}; "
      "model.dtype: bf16; "
      "another device.",
      [&] { run_training(config, sinks); });
}

}  // namespace trainer

extern "C" void trainer_core_train(const trainer::Config& config) { trainer::train(config); }
