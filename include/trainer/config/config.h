// The configuration of a run: plain values. Each key's name, range, unit and help are declared beside its
// section in src/config/schema.cpp; its type and default are the ones here.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace trainer {

enum class ModelDtype { automatic, bf16, fp32 };
enum class DataKind { automatic, seq2seq, completion, text, chat };
enum class LongSamples { truncate, drop, split };
enum class TruncationSide { right, left };
enum class BadRows { error, skip };
enum class LossOn { all_turns, last_turn, everything };
// What happens to marks of other programs on a message that are not known.
enum class UnknownMarks { error, ignore };
enum class MicroBatching { tokens, samples };
enum class CpuProducts { automatic, mkl, onednn, by_type, builtin };
enum class IntervalStrategy { no, steps, epoch };
enum class SchedulerType { linear, cosine, constant, constant_with_warmup, polynomial, inverse_sqrt };
enum class SaveDtype { automatic, bf16, fp16, fp32 };
enum class StateDtype { automatic, fp32, bf16 };
// The tensors that the ranks of a run shard (docs/parallel.md).
enum class Shard { automatic, none, optimizer, all };
enum class NotifyFormat { automatic, discord, slack, json, text };

// A number of at least 1, or `auto`: the program chooses it with the memory plan before it is used. Or `fit`:
// this number, unless the memory plan says that it would not fit.
class CountOrAuto {
 public:
  constexpr CountOrAuto(int64_t count) : count_(count) {}
  static constexpr CountOrAuto automatic() { return {0}; }
  static constexpr CountOrAuto if_it_fits(int64_t count) {
    CountOrAuto made(count);
    made.gives_way_ = true;
    return made;
  }
  constexpr bool is_automatic() const { return count_ == 0; }
  constexpr bool gives_way() const { return gives_way_; }
  constexpr operator int64_t() const { return count_; }

 private:
  int64_t count_;
  bool gives_way_ = false;
};

// true, false, or `auto`: the program decides.
class BoolOrAuto {
 public:
  template <std::same_as<bool> Bool>
  constexpr BoolOrAuto(Bool value) : value_(value) {}
  static constexpr BoolOrAuto automatic() { return {}; }
  constexpr bool is_automatic() const { return !value_; }
  // Returns the value, which is `decided` for `auto`.
  constexpr bool of(bool decided) const { return value_.value_or(decided); }
  constexpr bool operator==(const BoolOrAuto&) const = default;

 private:
  constexpr BoolOrAuto() = default;
  std::optional<bool> value_;
};

// A number of at least 1, or `all` that there are.
class CountOrAll {
 public:
  constexpr CountOrAll(int64_t count) : count_(count) {}
  static constexpr CountOrAll all() { return {0}; }
  constexpr bool is_all() const { return count_ == 0; }
  // Returns the number, which is `there_are` for `all`.
  constexpr int64_t of(int64_t there_are) const { return is_all() ? there_are : count_; }

 private:
  int64_t count_;
};

// What the backward pass computes again, in steps of which each takes less memory and more time than the one
// before: nothing (false), what is quick to compute (`light`), all within a number of blocks, from the first,
// and in the others what is quick, all within all blocks (true). Or as much as the memory plan needs
// (`auto`), or `fit`: nothing, unless that would not fit.
class Recompute {
 public:
  template <std::same_as<bool> Bool>
  constexpr Recompute(Bool all) : blocks_(all ? kAll : 0) {}
  static constexpr Recompute blocks(int64_t count) { return Recompute(count); }
  static constexpr Recompute light() { return Recompute(kLight); }
  static constexpr Recompute automatic() { return Recompute(kAutomatic); }
  static constexpr Recompute if_needed() { return Recompute(kIfNeeded); }
  constexpr bool is_automatic() const { return blocks_ == kAutomatic; }
  constexpr bool gives_way() const { return blocks_ == kIfNeeded; }
  // Returns the number of recomputed blocks for a model with `num_blocks`; all of them when `auto`, none when
  // `fit`.
  constexpr int64_t of(int64_t num_blocks) const {
    return is_automatic() ? num_blocks : std::clamp<int64_t>(blocks_, 0, num_blocks);
  }
  // Returns whether blocks that are not recomputed are `light`.
  constexpr bool is_light() const { return blocks_ == kLight || blocks_ > 0 || is_automatic(); }
  constexpr auto operator<=>(const Recompute&) const = default;

 private:
  static constexpr int64_t kAll = std::numeric_limits<int64_t>::max(), kAutomatic = -1, kIfNeeded = -2,
                           kLight = -3;
  explicit constexpr Recompute(int64_t blocks) : blocks_(blocks) {}
  int64_t blocks_;
};

// The tensors that lie outside the device's memory: in the host's memory for a GPU, in a file for the CPU.
struct Offload {
  bool automatic = false;  // the memory plan chooses, before anything is used
  bool optimizer = false, weights = false, activations = false;
  bool any() const { return optimizer || weights || activations; }
  auto operator<=>(const Offload&) const = default;
};

struct ModelConfig {
  std::string path;
  ModelDtype dtype = ModelDtype::automatic;
  std::string quantize = "none";  // or a way of keeping frozen weights in fewer bits
  bool double_quant = true;
  std::vector<std::string> add_tokens;

  bool quantises() const { return quantize != "none"; }
};

struct LoraConfig {
  int64_t r = 16;
  double lora_alpha = 32;
  double lora_dropout = 0.0;
  // Module name suffixes, or one regular expression for the whole name, or "all-linear". Empty: PEFT's
  // default for the model.
  std::variant<std::string, std::vector<std::string>> target_modules = "all-linear";
  std::variant<std::string, std::vector<std::string>> exclude_modules = std::vector<std::string>{};
  std::vector<int64_t> layers_to_transform;  // empty: all
  std::vector<std::string> layers_pattern;
  // Name pattern -> value, in the order in which they are tried.
  std::vector<std::pair<std::string, int64_t>> rank_pattern;
  std::vector<std::pair<std::string, double>> alpha_pattern;
  bool use_rslora = false;
  bool use_dora = false;
  std::vector<std::string> modules_to_save;
  std::string adapter;  // a PEFT directory to start from
};

// A set of rows: a file, a pattern (data/*.jsonl), or a folder. The weight says how often the samples occur
// in an epoch of the training data (docs/data.md).
struct DataSource {
  DataSource(std::string path, double weight = 1) : path(std::move(path)), weight(weight) {}
  bool operator==(const DataSource&) const = default;
  std::string path;
  double weight;
};

// The evaluation data: sets of rows, or a share that is held out of the training data.
struct EvalData {
  std::vector<DataSource> sources;
  double held_out = 0;
  bool empty() const { return sources.empty() && held_out == 0; }
};

struct DataConfig {
  std::vector<DataSource> train;
  EvalData eval;
  DataKind kind = DataKind::automatic;
  std::string input;  // a field, or a template with {field} in it; empty: found from the first row
  std::string target;
  int64_t max_source_length = 512;
  int64_t max_target_length = 512;
  int64_t max_length = 1024;
  LongSamples long_samples = LongSamples::truncate;
  TruncationSide truncation_side = TruncationSide::right;
  bool shuffle = true;
  std::optional<int64_t> max_samples;
  BadRows bad_rows = BadRows::error;
  LossOn loss_on = LossOn::all_turns;
  BoolOrAuto learn_reasoning = BoolOrAuto::automatic();  // auto: not a block that only the template writes
  UnknownMarks unknown_marks = UnknownMarks::error;
  std::string loss_weight;    // the field with the weight of a row in the loss; empty: all are 1
  std::string chat_template;  // a file; empty: the model's own
  std::string template_date;  // "2026-05-31"; empty: the day on which the run began
  BoolOrAuto packing = BoolOrAuto::automatic();
  // `auto` packs; settle_packing() replaces it where that may be slower.
  bool packs() const { return packing.of(true); }
  int64_t prefetch = 2;  // effective batches prepared ahead of the step
  std::string cache;     // folder for unpacked files and indexes; empty: the user's cache
  // Above this share the run ends with exit code 3; nullopt: only a warning.
  std::optional<double> max_truncated, max_unknown, max_malformed;
};

struct TrainingConfig {
  CountOrAuto batch_size = CountOrAuto::if_it_fits(8);
  std::optional<int64_t> gradient_accumulation_steps;
  std::optional<int64_t> effective_batch_size;
  double num_train_epochs = 3;
  int64_t max_steps = -1;
  double max_hours = 0;  // 0: no limit
  MicroBatching micro_batching = MicroBatching::tokens;
  double max_grad_norm = 1.0;
  int64_t max_bad_steps = 3;
  IntervalStrategy eval_strategy = IntervalStrategy::no;
  int64_t eval_steps = 500;
  std::optional<int64_t> eval_batch_size;  // default: batch_size
  bool load_best_model_at_end = false;
  std::string metric_for_best_model = "loss";
  int64_t early_stopping_patience = 0;  // 0: no early stop
  int64_t logging_steps = 10;
  int64_t num_workers = 2;
  int64_t num_threads = 0;  // 0: one per core
  CpuProducts cpu_products = CpuProducts::automatic;
  double label_smoothing = 0.0;
  double z_loss = 0.0;
  std::optional<double> dropout;  // default: the model's own
  bool tf32 = true;
  bool deterministic = true;
  std::string replay_cuts;  // a metrics.jsonl
};

struct EvaluationConfig {
  bool generate = false;
  std::optional<int64_t> max_samples;            // default: 200 while training, all in `trainer eval`
  std::optional<int64_t> generation_batch_size;  // default: eval_batch_size
  std::optional<int64_t> max_new_tokens;         // default: 1.5 x the tokens of the longest target
  int64_t num_beams = 1;
  bool skip_special_tokens = true;  // in answers and targets that are compared
  std::vector<std::string> metrics{"exact_match", "f1", "rouge", "bleu", "chrf", "json"};
  int64_t show = 3;
};

struct OptimizerConfig {
  std::string name = "adamw";
  // In a configuration that is loaded, this one, the schedule, its warm-up and the samples of an update have
  // defaults that follow from the method and the model (src/config/schema.cpp).
  double learning_rate = 5e-5;
  double weight_decay = 0.0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  // adafactor; its other defaults differ, too (src/config/schema.cpp)
  std::optional<double> beta1;  // nullopt: no first moment
  double decay_rate = -0.8;
  double clip_threshold = 1.0;
  std::pair<double, double> eps{1e-30, 1e-3};
  bool scale_parameter = false;
  bool relative_step = false;
  bool warmup_init = false;
  SchedulerType lr_scheduler_type = SchedulerType::linear;
  int64_t warmup_steps = 0;
  double warmup_ratio = 0.0;
  bool master_weights = false;
  StateDtype state_dtype = StateDtype::automatic;
  StateDtype grad_dtype = StateDtype::automatic;
};

struct SaveConfig {
  IntervalStrategy strategy = IntervalStrategy::steps;
  int64_t steps = 500;
  double minutes = 0;       // 0: no saving by time
  int64_t total_limit = 2;  // 0: keep all
  SaveDtype result_dtype = SaveDtype::automatic;
  bool weights_only = false;
  bool async = true;
};

// The output for people who watch a run.
struct ObserveConfig {
  bool tensorboard = true;
  std::vector<std::string> report_to;  // wandb, mlflow, trackio
  double report_minutes = 5;           // 0: no page
};

struct MemoryConfig {
  Recompute gradient_checkpointing = Recompute::if_needed();
  BoolOrAuto rehearse = BoolOrAuto::automatic();  // on a GPU, and where there is a limit
  int64_t empty_cache_steps = 10;
  // LibTorch's caching allocator on the GPU
  bool expandable_segments = true;
  std::optional<int64_t> max_split_size_mb;
  int64_t roundup_power2_divisions = 0;
  double garbage_collection_threshold = 0;
  std::string limit;  // trainer/memory/limit.h
  Offload offload;
  std::string offload_dir;  // empty: output_dir
};

struct GpuConfig {
  int64_t min_gpu_memory_mb = 0;
  bool wait_for_gpu = false;
  double gpu_wait_timeout_minutes = 60;
  double gpu_check_interval_seconds = 30;
};

struct ParallelConfig {
  CountOrAll gpus = 1;
  Shard shard = Shard::automatic;
  double timeout = 600;  // seconds
};

struct RecoveryConfig {
  int64_t min_batch_size = 1;
  int64_t max_retries = 10;
  int64_t grow_after = 100;
  bool try_other_gpus = false;
  bool cpu_fallback = false;
};

struct NotifyConfig {
  // A URL, which is a secret, or the name of an environment variable that holds one. Empty: none.
  std::string webhook;
  NotifyFormat format = NotifyFormat::automatic;
  std::string command;  // for /bin/sh; empty: none
  std::vector<std::string> events{"start",   "progress", "best",    "recovery",
                                  "warning", "failed",   "stopped", "finished"};
  double every_minutes = 60;  // 0: no progress
};

struct Config {
  ModelConfig model;
  std::optional<LoraConfig> lora;  // absent: full fine-tuning
  DataConfig data;
  TrainingConfig training;
  EvaluationConfig evaluation;
  OptimizerConfig optimizer;
  SaveConfig save;
  ObserveConfig observe;
  MemoryConfig memory;
  GpuConfig gpu;
  ParallelConfig parallel;
  RecoveryConfig recovery;
  NotifyConfig notify;
  std::string device = "auto";  // auto, cpu, cuda, cuda:N
  int64_t seed = 42;
  std::string output_dir = "runs/output";
  bool overwrite_output_dir = false;
  std::string resume = "auto";  // auto, never, or a checkpoint
  std::vector<std::string> resume_changed;

  // The place where each key was set: "training.batch_size" -> "my.yaml:3:15" or "override 'batch_size=4'".
  // For messages only; it does not affect training.
  std::map<std::string, std::string> origins;

  // The directory for files of memory.offload.
  const std::string& offload_directory() const {
    return memory.offload_dir.empty() ? output_dir : memory.offload_dir;
  }

  // The samples of one optimizer step.
  int64_t effective_batch_size() const {
    return training.effective_batch_size.value_or(training.batch_size *
                                                  training.gradient_accumulation_steps.value_or(1));
  }
  int64_t eval_batch_size() const {
    if (training.eval_batch_size) return *training.eval_batch_size;
    return training.batch_size.is_automatic() ? TrainingConfig{}.batch_size : training.batch_size;
  }
  int64_t generation_batch_size() const {
    return evaluation.generation_batch_size.value_or(eval_batch_size());
  }
};

}  // namespace trainer
