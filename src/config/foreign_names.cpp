// A table on purpose: what users of other trainers type, and what it is here.
#include <string>
#include <unordered_map>

#include "trainer/base/strings.h"

#include "config/unknown_key.h"
#include "config/weight_formats.h"

namespace trainer::config {
namespace {

constexpr const char* kLater = "not supported by this version";
constexpr const char* kAlways = "not a key: this is always on; remove the line";
constexpr const char* kNever = "not a key: this is always off; remove the line";
constexpr const char* kNoPlace = "not supported; remove the line";
const char* const kQuantized = [] {
  static const std::string text = concat("unknown key; write model.quantize: ", smallest_weight_format().name,
                                         " for weights in 4 bits (docs/quantization.md)");
  return text.c_str();
}();
constexpr const char* kProcesses =
    "unknown key; did you mean parallel.gpus? Processes on several machines are started by torchrun or srun "
    "(docs/parallel.md)";
constexpr const char* kSharded =
    "unknown key; did you mean parallel.shard? It shards the optimizer's state, or weights "
    "too, among GPUs (docs/parallel.md)";
constexpr const char* kLaunched =
    "not a key; a process takes its place from the variables of torchrun or srun (docs/parallel.md)";
constexpr const char* kOwnDivision = "not a key: how GPUs work together is set in the section parallel";
constexpr const char* kReports =
    "not a key: scripts/sync_metrics feeds metrics.jsonl to wandb or mlflow, during the run or afterwards "
    "(docs/observing.md)";
constexpr const char* kReportTo =
    "not a key; TensorBoard is observe.tensorboard: true (the default), scripts/sync_metrics feeds wandb and "
    "mlflow (docs/observing.md)";
constexpr const char* kLocalFiles =
    "not supported: nothing is uploaded; downloads follow HF_HUB_CACHE, HF_TOKEN and the like "
    "(docs/model-names.md)";
constexpr const char* kAllocatorKeys =
    "unknown key; here its parts are memory.expandable_segments, memory.max_split_size_mb, "
    "memory.roundup_power2_divisions and memory.garbage_collection_threshold; if it is set in the "
    "environment, that setting is used";
constexpr const char* kLearnPrompt =
    "unknown key; data.loss_on: everything learns all of a conversation, data.kind: text all of a text";
constexpr const char* kMethod = "not supported by this version: training is full or LoRA";

// Hugging Face TrainingArguments, and PEFT's LoraConfig.
const ForeignName kHuggingFace[] = {
    {"per_device_train_batch_size", "training.batch_size", ""},
    {"per_gpu_train_batch_size", "training.batch_size", ""},
    {"train_batch_size", "training.batch_size", ""},
    {"predict_with_generate", "evaluation.generate", ""},
    {"generation_max_length", "evaluation.max_new_tokens", ""},
    {"generation_num_beams", "evaluation.num_beams", ""},
    {"max_eval_samples", "evaluation.max_samples", ""},
    {"per_device_eval_batch_size", "training.eval_batch_size", ""},
    {"per_gpu_eval_batch_size", "training.eval_batch_size", ""},
    {"gradient_accumulation", "training.gradient_accumulation_steps", ""},
    {"accumulate_grad_batches", "training.gradient_accumulation_steps", ""},
    {"lr", "optimizer.learning_rate", ""},
    {"peak_lr", "optimizer.learning_rate", ""},
    {"wd", "optimizer.weight_decay", ""},
    {"beta1", "optimizer.adam_beta1", ""},
    {"beta2", "optimizer.adam_beta2", ""},
    {"eps", "optimizer.adam_epsilon", ""},
    {"epsilon", "optimizer.adam_epsilon", ""},
    {"adam_eps", "optimizer.adam_epsilon", ""},
    {"optim", "optimizer.name", ""},
    {"adafactor", "", "unknown key; write optimizer.name: adafactor"},
    {"optim_args", "", kNoPlace},
    {"scheduler", "optimizer.lr_scheduler_type", ""},
    {"lr_scheduler_kwargs", "", kLater},
    {"warmup", "optimizer.warmup_steps", ""},
    {"num_warmup_steps", "optimizer.warmup_steps", ""},
    {"warmup_proportion", "optimizer.warmup_ratio", ""},
    {"epochs", "training.num_train_epochs", ""},
    {"max_epochs", "training.num_train_epochs", ""},
    {"num_epoch", "training.num_train_epochs", ""},
    {"num_train_steps", "training.max_steps", ""},
    {"max_train_steps", "training.max_steps", ""},
    {"train_steps", "training.max_steps", ""},
    {"total_steps", "training.max_steps", ""},
    {"clip_grad_norm", "training.max_grad_norm", ""},
    {"grad_clip", "training.max_grad_norm", ""},
    {"gradient_clip_val", "training.max_grad_norm", ""},
    {"gradient_clipping", "training.max_grad_norm", ""},
    {"evaluation_strategy", "training.eval_strategy", ""},
    {"do_eval", "", "unknown key; data.eval: FILE is enough, training.eval_strategy says when"},
    {"do_train", "", "not a key: the command `trainer train` trains"},
    {"do_predict", "", "not a key; `trainer generate` shows what a model answers"},
    {"eval_on_start", "", kLater},
    {"eval_delay", "", kLater},
    {"eval_accumulation_steps", "", kNoPlace},
    {"prediction_loss_only", "", kNoPlace},
    {"log_every", "training.logging_steps", ""},
    {"log_interval", "training.logging_steps", ""},
    {"logging_strategy", "", "unknown key; progress is logged every training.logging_steps updates"},
    {"logging_dir", "", "not a key; metrics.jsonl, log.txt, report.html and tensorboard/ are in output_dir"},
    {"logging_first_step", "", kLater},
    {"log_level", "", "not a key; use the options --quiet and --verbose"},
    {"disable_tqdm", "", "not a key; use the option --quiet"},
    {"report_to", "", kReportTo},
    {"run_name", "output_dir", "unknown key; a run is named by its output_dir"},
    {"save_strategy", "save.strategy", ""},
    {"save_steps", "save.steps", ""},
    {"save_interval", "save.steps", ""},
    {"checkpointing_steps", "save.steps", ""},
    {"save_total_limit", "save.total_limit", ""},
    {"keep_checkpoints", "save.total_limit", ""},
    {"save_safetensors", "", kAlways},
    {"save_only_model", "save.weights_only", ""},
    {"greater_is_better", "", "not a key: it follows from training.metric_for_best_model"},
    {"early_stopping_threshold", "", kLater},
    {"resume_from_checkpoint", "resume",
     "unknown key; write resume: auto at the top level, or resume: DIRECTORY"},
    {"ignore_data_skip", "", "not a key: a resumed run never has to read data just to skip it"},
    {"restore_callback_states_from_checkpoint", "", kAlways},
    {"async_save", "save.async", ""},
    {"bf16", "model.dtype", "unknown key; write model.dtype: bf16"},
    {"bf16_full_eval", "model.dtype", "unknown key; write model.dtype: bf16"},
    {"fp16", "", "not supported: fp16 gives NaN on T5 and needs loss scaling; write model.dtype: bf16"},
    {"fp16_full_eval", "", "not supported; write model.dtype: bf16"},
    {"fp32", "model.dtype", "unknown key; write model.dtype: fp32"},
    {"allow_tf32", "training.tf32", ""},
    {"half_precision_backend", "", kNoPlace},
    {"torch_dtype", "model.dtype", ""},
    {"mixed_precision", "model.dtype", ""},
    {"precision", "model.dtype", ""},
    {"use_cache", "", "not a key: training has no KV cache, generation has one"},
    {"gradient_checkpointing_kwargs", "",
     "not supported; memory.gradient_checkpointing is true, false, auto or a number"},
    {"activation_checkpointing", "memory.gradient_checkpointing", ""},
    {"torch_empty_cache_steps", "memory.empty_cache_steps", ""},
    {"pytorch_alloc_conf", "", kAllocatorKeys},
    {"pytorch_cuda_alloc_conf", "", kAllocatorKeys},
    {"cuda_alloc_conf", "", kAllocatorKeys},
    {"max_split_size", "memory.max_split_size_mb", ""},
    {"roundup_power2", "memory.roundup_power2_divisions", ""},
    {"gc_threshold", "memory.garbage_collection_threshold", ""},
    {"no_cuda", "device", "unknown key; write device: cpu at the top level"},
    {"use_cpu", "device", "unknown key; write device: cpu at the top level"},
    {"world_size", "parallel.gpus", kProcesses},
    {"num_processes", "parallel.gpus", kProcesses},
    {"num_gpus", "parallel.gpus", kProcesses},
    {"n_gpu", "parallel.gpus", kProcesses},
    {"nproc_per_node", "parallel.gpus", kProcesses},
    {"num_machines", "", kLaunched},
    {"nnodes", "", kLaunched},
    {"local_rank", "", kLaunched},
    {"master_addr", "", kLaunched},
    {"master_port", "", kLaunched},
    {"deepspeed", "parallel.shard", kSharded},
    {"zero_stage", "parallel.shard", kSharded},
    {"zero_optimization", "parallel.shard", kSharded},
    {"fsdp", "parallel.shard", kSharded},
    {"fsdp_config", "parallel.shard", kSharded},
    {"ddp_timeout", "parallel.timeout", ""},
    {"ddp_find_unused_parameters", "", kOwnDivision},
    {"ddp_backend", "", kOwnDivision},
    {"parallelism_config", "", kOwnDivision},
    {"accelerator_config", "", kOwnDivision},
    {"device_map", "device", "unknown key; write device: cuda:0 at the top level; a model is on one device"},
    {"max_memory", "", kLater},
    {"auto_find_batch_size", "", kAlways},
    {"min_gpu_memory", "gpu.min_gpu_memory_mb", ""},
    {"min_gpu_memory_gb", "gpu.min_gpu_memory_mb", "unknown key; write gpu.min_gpu_memory_mb: 1000 for 1 GB"},
    {"gpu_wait_timeout", "gpu.gpu_wait_timeout_minutes", ""},
    {"wait_timeout_minutes", "gpu.gpu_wait_timeout_minutes", ""},
    {"gpu_check_interval", "gpu.gpu_check_interval_seconds", ""},
    {"check_interval_seconds", "gpu.gpu_check_interval_seconds", ""},
    {"auto_device", "device", "unknown key; write device: auto at the top level"},
    {"data_seed", "seed", ""},
    {"random_seed", "seed", ""},
    {"full_determinism", "training.deterministic", ""},
    {"dataloader_num_workers", "training.num_workers", ""},
    {"num_proc", "training.num_workers", ""},
    {"dataloader_drop_last", "", "not supported: the last update of an epoch uses the samples that are left"},
    {"dataloader_pin_memory", "", kNoPlace},
    {"dataloader_prefetch_factor", "data.prefetch", ""},
    {"dataloader_persistent_workers", "", kNoPlace},
    {"omp_num_threads", "training.num_threads", ""},
    {"remove_unused_columns", "",
     "not a key: fields that data.input and data.target do not name are ignored"},
    {"group_by_length", "training.micro_batching",
     "unknown key; write training.micro_batching: tokens (the default)"},
    {"length_column_name", "", kNoPlace},
    {"label_names", "", kNoPlace},
    {"label_smoothing_factor", "training.label_smoothing", ""},
    {"torch_compile", "", kNoPlace},
    {"torchdynamo", "", kNoPlace},
    {"jit_mode_eval", "", kNoPlace},
    {"neftune_noise_alpha", "", kNoPlace},
    {"push_to_hub", "", kLocalFiles},
    {"hub_model_id", "", kLocalFiles},
    {"hub_token", "", kLocalFiles},
    {"hub_strategy", "", kLocalFiles},
    {"include_num_input_tokens_seen", "", kAlways},
    {"average_tokens_across_devices", "", kAlways},
    {"max_seq_length", "data.max_length", ""},
    {"max_seq_len", "data.max_length", ""},
    {"model_max_length", "data.max_length", ""},
    {"block_size", "data.max_length", ""},
    {"max_input_length", "data.max_source_length", ""},
    {"source_max_length", "data.max_source_length", ""},
    {"max_output_length", "data.max_target_length", ""},
    {"target_max_length", "data.max_target_length", ""},
    {"source_prefix", "data.input",
     "unknown key; write the prefix into the template of data.input: \"translate: {field}\""},
    {"text_column", "data.input", ""},
    {"dataset_text_field", "data.input", "unknown key; write data.kind: text and data.input: FIELD"},
    {"summary_column", "data.target", ""},
    {"source_column", "data.input", ""},
    {"target_column", "data.target", ""},
    {"input_column", "data.input", ""},
    {"train_file", "data.train", ""},
    {"train_data", "data.train", ""},
    {"train_path", "data.train", ""},
    {"validation_file", "data.eval", ""},
    {"eval_file", "data.eval", ""},
    {"eval_data", "data.eval", ""},
    {"valid_data", "data.eval", ""},
    {"test_file", "data.eval", ""},
    {"eval_dataset", "data.eval", ""},
    {"alpha", "lora.lora_alpha", ""},
    {"rank", "lora.r", ""},
    {"bias", "", "not supported: LoRA trains no biases"},
    {"init_lora_weights", "", "not a key: A is random and B is zero, as is PEFT's default"},
    {"task_type", "", "not a key: it follows from the model"},
    {"peft_type", "", "not a key: a section `lora:` means LoRA"},
    {"peft", "lora", "unknown key; LoRA is the section `lora:`"},
    {"use_peft", "lora", "unknown key; a section `lora: {}` turns LoRA on"},
    {"use_lora", "lora", "unknown key; a section `lora: {}` turns LoRA on"},
    {"load_in_4bit", "", kQuantized},
    {"load_in_8bit", "", kQuantized},
    {"bnb_4bit_compute_dtype", "", kQuantized},
    {"attn_implementation", "",
     "not a key: attention is always computed as by flash attention, in memory that grows with the length "
     "of the samples, not with its square"},
    {"model", "model.path", ""},
    {"model_name", "model.path", ""},
    {"model_id", "model.path", ""},
    {"pretrained_model_name_or_path", "model.path", ""},
    {"base_model_name_or_path", "model.path", ""},
    {"tokenizer_name", "", "not a key: the tokenizer is the one in the directory of model.path"},
    {"cache_dir", "", kLocalFiles},
    {"trust_remote_code", "", "not supported: no code of a model is run"},
};

const ForeignName kLlamaFactory[] = {
    {"model_name_or_path", "model.path", ""},
    {"adapter_name_or_path", "lora.adapter", ""},
    {"adapter_path", "lora.adapter", ""},
    {"cutoff_len", "data.max_length", ""},
    {"lora_rank", "lora.r", ""},
    {"lora_target", "lora.target_modules", ""},
    {"additional_target", "lora.modules_to_save", ""},
    {"create_new_adapter", "", kNoPlace},
    {"finetuning_type", "lora",
     "unknown key; a section `lora: {}` turns LoRA on, without one all weights are trained"},
    {"stage", "", "not supported by this version: training is supervised fine-tuning"},
    {"freeze_trainable_layers", "", kMethod},
    {"use_galore", "", kMethod},
    {"use_badam", "", kMethod},
    {"pissa_init", "", kMethod},
    {"loraplus_lr_ratio", "", kMethod},
    {"dataset", "data.train", ""},
    {"dataset_dir", "", "not a key; data.train takes paths"},
    {"template", "",
     "unknown key; conversations are formatted by the model's own chat template, or the one in "
     "data.chat_template"},
    {"val_size", "data.eval", ""},
    {"max_samples", "data.max_samples", ""},
    {"preprocessing_num_workers", "training.num_workers", ""},
    {"overwrite_cache", "", "not a key: cached data is renewed when the files change (data.cache)"},
    {"train_on_prompt", "", kLearnPrompt},
    {"mask_history", "", "unknown key; write data.loss_on: last_turn"},
    {"neat_packing", "data.packing", ""},
    {"flash_attn", "",
     "not a key: attention is always computed as by flash attention, in memory that grows with the length "
     "of the samples, not with its square"},
    {"use_unsloth", "", kNoPlace},
    {"enable_liger_kernel", "", "not a key: the logits of all tokens never exist at once"},
    {"upcast_layernorm", "", "not a key: norms compute in fp32"},
    {"disable_gradient_checkpointing", "memory.gradient_checkpointing", ""},
    {"quantization_bit", "", kQuantized},
    {"quantization_method", "", kQuantized},
    {"pure_bf16", "", "unknown key; write model.dtype: bf16"},
    {"plot_loss", "", "not a key; output_dir has the curves in report.html (observe.report_minutes)"},
    {"export_dir", "output_dir", ""},
    {"infer_backend", "", kNoPlace},
};

const ForeignName kAxolotl[] = {
    {"base_model", "model.path", ""},
    {"base_model_config", "", "not a key: config.json is in the directory of model.path"},
    {"model_type", "", "not a key: it is read from the model's config.json"},
    {"tokenizer_type", "", "not a key: it is read from the model's files"},
    {"micro_batch_size", "training.batch_size", ""},
    {"batch_size_per_device", "training.batch_size", ""},
    {"global_batch_size", "training.effective_batch_size", ""},
    {"num_epochs", "training.num_train_epochs", ""},
    {"sequence_len", "data.max_length", ""},
    {"eval_sequence_len", "data.max_length", ""},
    {"sample_packing", "data.packing", ""},
    {"eval_sample_packing", "data.packing", ""},
    {"pad_to_sequence_len", "", "not a key: samples are padded to the longest of their micro-batch"},
    {"datasets", "data.train",
     "unknown key; data.train takes the files, data.input and data.target the fields"},
    {"test_datasets", "data.eval", ""},
    {"val_set_size", "data.eval", ""},
    {"dataset_prepared_path", "", "not a key: cached data is renewed when the files change (data.cache)"},
    {"shuffle_merged_datasets", "data.shuffle", ""},
    {"train_on_inputs", "", kLearnPrompt},
    {"adapter", "lora.adapter", ""},
    {"lora_model_dir", "lora.adapter", ""},
    {"lora_r", "lora.r", ""},
    {"lora_target_modules", "lora.target_modules", ""},
    {"lora_target_linear", "lora.target_modules", "unknown key; write lora.target_modules: all-linear"},
    {"lora_modules_to_save", "lora.modules_to_save", ""},
    {"peft_use_rslora", "lora.use_rslora", ""},
    {"peft_use_dora", "lora.use_dora", ""},
    {"lora_fan_in_fan_out", "", kNever},
    {"lora_on_cpu", "", kNoPlace},
    {"lr_scheduler", "optimizer.lr_scheduler_type", ""},
    {"cosine_min_lr_ratio", "", kLater},
    {"optimizer", "optimizer.name", ""},
    {"bfloat16", "model.dtype", "unknown key; write model.dtype: bf16"},
    {"float16", "", "not supported; write model.dtype: bf16"},
    {"flash_attention", "",
     "not a key: attention is always computed as by flash attention, in memory that grows with the length "
     "of the samples, not with its square"},
    {"xformers_attention", "",
     "not a key: attention is always computed as by flash attention, in memory that grows with the length "
     "of the samples, not with its square"},
    {"sdp_attention", "",
     "not a key: attention is always computed as by flash attention, in memory that grows with the length "
     "of the samples, not with its square"},
    {"evals_per_epoch", "training.eval_steps",
     "unknown key; write training.eval_strategy: steps and training.eval_steps"},
    {"saves_per_epoch", "save.steps", "unknown key; write save.strategy: steps and save.steps"},
    {"eval_table_size", "", kNoPlace},
    {"gpu_memory_limit", "memory.limit", ""},
    {"auto_resume_from_checkpoints", "resume",
     "unknown key; write resume: auto at the top level (the default)"},
    {"wandb_project", "", kReports},
    {"wandb_entity", "", kReports},
    {"wandb_run_id", "", kReports},
    {"wandb_name", "", kReports},
    {"use_wandb", "", kReports},
    {"wandb", "", kReports},
    {"mlflow_tracking_uri", "", kReports},
    {"use_tensorboard", "observe.tensorboard", ""},
    {"special_tokens", "", "not a key: special tokens are read from the tokenizer's files"},
    {"rl", "", "not supported by this version: training is supervised fine-tuning"},
    {"strict", "", kAlways},
    {"debug", "", "not a key; use the option --verbose"},
    {"<<", "", "YAML merge keys are not supported; to build on another file use `extends: FILE`"},
};

}  // namespace

const ForeignName* find_foreign_name(const std::string& name) {
  static const auto index = [] {
    std::unordered_map<std::string, const ForeignName*> names;
    for (const ForeignName& entry : kHuggingFace) names.emplace(entry.name, &entry);
    for (const ForeignName& entry : kLlamaFactory) names.emplace(entry.name, &entry);
    for (const ForeignName& entry : kAxolotl) names.emplace(entry.name, &entry);
    return names;
  }();
  const auto found = index.find(name);
  return found == index.end() ? nullptr : found->second;
}

}  // namespace trainer::config
