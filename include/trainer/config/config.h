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

#include "trainer/config/values.h"

namespace trainer {

struct ModelConfig {
  std::string path;
  ModelDtype dtype = ModelDtype::automatic;
  ModelInit init = ModelInit::pretrained;
  std::string quantize = "none";  // or a way of keeping frozen weights in fewer bits
  bool double_quant = true;
  std::vector<std::string> add_tokens;
  bool encoder_only = false;  // of an encoder-decoder

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
// in an epoch of the training data, loss_weight what their tokens count in the loss (docs/data.md).
struct DataSource {
  DataSource(std::string path, double weight = 1, double loss_weight = 1)
      : path(std::move(path)), weight(weight), loss_weight(loss_weight) {}
  bool operator==(const DataSource&) const = default;
  std::string path;
  double weight, loss_weight;
};

// The evaluation data: sets of rows, or a share that is held out of the training data.
struct EvalData {
  std::vector<DataSource> sources;
  double held_out = 0;
  bool empty() const { return sources.empty() && held_out == 0; }
};

// What the label of a row is. No key says it: it follows from the objective, the data and the model.
struct RowLabels {
  RowScore score = RowScore::none;
  std::vector<std::string> classes;  // in the order of the head's outputs; empty: those of the data
  std::vector<double> weights;       // of the classes in the loss; empty: all are 1
  bool required = true;              // false: a row may go without its label
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
  NoiseForm noise = NoiseForm::spans;
  std::optional<double> noise_rate;  // nullopt: 0.15, or 0.5 of a prefix
  double noise_span = 3;
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
  RowLabels labels;
};

// What a step optimises (docs/preferences.md, docs/classification.md, docs/distillation.md).
struct ObjectiveConfig {
  std::string name = "sft";
  std::string loss_type = "sigmoid";
  double beta = 0.1;
  double label_smoothing = 0.0;
  double rpo_alpha = 0.0;
  std::string nll_over = "answers";
  double gamma = 1.0;
  double desirable_weight = 1.0;
  double undesirable_weight = 1.0;
  BoolOrAuto length_normalised = BoolOrAuto::automatic();
  Reference reference = Reference::automatic;
  std::vector<std::string> labels;  // empty: those of the model or the data
  std::vector<std::pair<std::string, double>> class_weights;
  bool balance_classes = false;
  double center_rewards_coefficient = 0.0;
  double similarity_scale = 20.0;
  // distill
  std::string teacher;  // a model or adapter directory
  std::string logits;   // a file or folder with what a teacher said
  int64_t top_k = 64;
  double temperature = 1.0;
  double teacher_weight = 0.5;
  std::string divergence = "forward";

  bool distills() const { return name == "distill"; }

  // What rows are scored as; none: the model has the vocabulary's head.
  RowScore row_score() const {
    if (name == "classification") return RowScore::label;
    if (name == "regression") return RowScore::number;
    if (name == "token_classification") return RowScore::tags;
    if (name == "embedding") return RowScore::vector;
    return name == "reward" ? RowScore::answer : RowScore::none;
  }
  bool embeds() const { return row_score() == RowScore::vector; }
  // Whether rows have labels.
  bool classifies() const {
    const RowScore score = row_score();
    return has_classes(score) || score == RowScore::number;
  }
  // Whether answers are compared, or judged.
  bool compares() const { return name != "sft" && !classifies() && !embeds() && !distills(); }
  bool judges() const { return name == "kto"; }
  // The weight of the chosen answer's own loss beside the comparison.
  double nll_weight() const { return name == "orpo" ? 1.0 : compares() && !judges() ? rpo_alpha : 0.0; }
  // Whether the loss is of log-probabilities against those of a reference.
  bool has_reference() const {
    return reference != Reference::none && (name == "dpo" || name == "ipo" || name == "kto");
  }
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
  double focal_gamma = 0.0;
  double neftune_noise_alpha = 0.0;
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
  // No key: set where the memory plan says that it fits (trainer/training/solve_plan.h). See
  // ForwardContext::widen_once.
  bool widen_once = false;
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
  ObjectiveConfig objective;
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
  // Where the reference's log-probabilities come from: objective.reference, with auto decided.
  Reference reference() const {
    if (!objective.has_reference()) return Reference::none;
    if (objective.reference != Reference::automatic) return objective.reference;
    const bool adapter_alone =
        lora && lora->adapter.empty() && lora->modules_to_save.empty() && model.add_tokens.empty();
    return adapter_alone ? Reference::adapter_off : Reference::kept;
  }
  // The longest target of an encoder-decoder. One that scores a text has the text itself there.
  int64_t max_target_length() const {
    return objective.row_score() == RowScore::none ? data.max_target_length : data.max_source_length;
  }
  // The answers, or texts, that go through the model for it: of a preference both.
  int64_t sequences_of_a_step() const {
    const bool pairs = objective.embeds() || (objective.compares() && !objective.judges());
    return (pairs ? 2 : 1) * effective_batch_size();
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
