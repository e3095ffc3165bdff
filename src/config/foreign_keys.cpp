// A table on purpose: what users of other trainers type, and what it is here. The answer to an unknown key,
// import-config and docs/coming-from.md come from it.
#include "config/foreign_keys.h"

#include <sstream>
#include <string>
#include <unordered_map>

#include "trainer/base/strings.h"

#include "config/import_settings.h"
#include "config/weight_formats.h"

namespace trainer::config {
namespace {

constexpr const char* kLater = "not supported by this version";
constexpr const char* kAlways = "not a key: this is always on; remove the line";
constexpr const char* kNoPlace = "not supported; remove the line";
const char* const kQuantized = [] {
  static const std::string text = concat("unknown key; write model.quantize: ", smallest_weight_format().name,
                                         " for weights in 4 bits (docs/quantization.md)");
  return text.c_str();
}();
constexpr const char* kLearnPrompt =
    "unknown key; data.loss_on: everything learns all of a conversation, data.kind: text all of a text";
constexpr const char* kFlash =
    "not a key: attention is always computed as by flash attention, in memory that grows with the length "
    "of the samples, not with its square";

constexpr Program kHf = Program::hugging_face, kFactory = Program::llama_factory, kAxolotl = Program::axolotl,
                  kTorchtune = Program::torchtune;

// import-config applies the rows with a converter first, in this order: what all programs share comes last,
// because it gives way to what their own keys have set.
const ForeignKey kForeignKeys[] = {
    {kFactory, "model_name_or_path", "model.path"},
    {kFactory, "adapter_name_or_path, adapter_path", "lora.adapter"},
    {kFactory, "cutoff_len", "data.max_length"},
    {kFactory, "lora_rank", "lora.r"},
    {kFactory, "lora_target", "lora.target_modules"},
    {kFactory, "additional_target", "lora.modules_to_save", "", to::list},
    {kFactory, "finetuning_type", "lora",
     "unknown key; a section `lora: {}` turns LoRA on, without one all weights are trained"},
    {kFactory, "dataset", "data.train"},
    {kFactory, "val_size", "data.eval", "", to::held_out},
    {kFactory, "max_samples", "data.max_samples"},
    {kFactory, "preprocessing_num_workers", "training.num_workers", "", to::unsaid},
    {kFactory, "train_on_prompt", "data.loss_on: everything", kLearnPrompt},
    {kFactory, "neat_packing, packing", "data.packing", "", to::packed},
    {kFactory, "disable_gradient_checkpointing", "memory.gradient_checkpointing"},
    {kFactory, "quantization_bit", "model.quantize", kQuantized, to::four_bits},
    {kFactory, "pure_bf16", "model.dtype: bf16"},
    {kFactory, "export_dir", "output_dir"},
    {kFactory, "create_new_adapter", "", kNoPlace},
    {kFactory, "stage", "objective.name",
     "unknown key; for preferences write objective.name: dpo (docs/preferences.md)"},
    {kFactory, "pref_beta", "objective.beta"},
    {kFactory, "pref_loss", "objective.loss_type"},
    {kFactory, "pref_ftx", "objective.rpo_alpha"},
    {kFactory, "kto_chosen_weight", "objective.desirable_weight"},
    {kFactory, "kto_rejected_weight", "objective.undesirable_weight"},
    {kFactory, "freeze_trainable_layers, use_galore, use_badam, pissa_init, loraplus_lr_ratio", "",
     "not supported by this version: training is full or LoRA"},
    {kFactory, "do_sample, temperature, top_k, top_p, repetition_penalty, length_penalty", "",
     "not a key: `trainer generate` has options for it; evaluation is greedy or with evaluation.num_beams"},
    {kFactory, "dataset_dir", "", "not a key; data.train takes paths"},
    {kFactory, "template", "",
     "unknown key; conversations are formatted by the model's own chat template, or the one in "
     "data.chat_template"},
    {kFactory, "overwrite_cache", "", "not a key: cached data is renewed when the files change (data.cache)",
     to::unsaid},
    {kFactory, "mask_history", "data.loss_on: last_turn"},
    {kFactory, "flash_attn", "", kFlash, to::unsaid},
    {kFactory, "use_unsloth, infer_backend", "", kNoPlace, to::unsaid},
    {kFactory, "enable_liger_kernel", "", "not a key: the logits of all tokens never exist at once",
     to::unsaid},
    {kFactory, "upcast_layernorm", "", "not a key: norms compute in fp32", to::unsaid},
    {kFactory, "quantization_method", "", kQuantized, to::unsaid},
    {kFactory, "plot_loss", "",
     "not a key; output_dir has the curves in report.html (observe.report_minutes)", to::unsaid},
    {kAxolotl, "base_model", "model.path"},
    {kAxolotl, "micro_batch_size, batch_size_per_device", "training.batch_size"},
    {kAxolotl, "global_batch_size", "training.effective_batch_size"},
    {kAxolotl, "num_epochs", "training.num_train_epochs"},
    {kAxolotl, "sequence_len, eval_sequence_len", "data.max_length"},
    {kAxolotl, "sample_packing", "data.packing", "", to::packed},
    {kAxolotl, "eval_sample_packing", "data.packing", "", to::unsaid},
    {kAxolotl, "datasets", "data.train",
     "unknown key; data.train takes the files, data.input and data.target the fields"},
    {kAxolotl, "test_datasets", "data.eval"},
    {kAxolotl, "val_set_size", "data.eval", "", to::held_out},
    {kAxolotl, "shuffle_merged_datasets", "data.shuffle"},
    {kAxolotl, "train_on_inputs", "data.loss_on: everything", kLearnPrompt},
    {kAxolotl, "adapter, lora_model_dir", "lora.adapter"},
    {kAxolotl, "lora_r", "lora.r"},
    {kAxolotl, "lora_target_modules", "lora.target_modules"},
    {kAxolotl, "lora_target_linear", "lora.target_modules: all-linear"},
    {kAxolotl, "lora_modules_to_save", "lora.modules_to_save"},
    {kAxolotl, "peft_use_rslora", "lora.use_rslora"},
    {kAxolotl, "peft_use_dora", "lora.use_dora"},
    {kAxolotl, "lr_scheduler", "optimizer.lr_scheduler_type", "", to::schedule},
    {kAxolotl, "optimizer", "optimizer.name", "", to::optimizer},
    {kAxolotl, "bfloat16", "model.dtype: bf16"},
    {kAxolotl, "evals_per_epoch", "training.eval_strategy",
     "unknown key; write training.eval_strategy: steps and training.eval_steps", to::per_epoch},
    {kAxolotl, "saves_per_epoch", "save.strategy", "unknown key; write save.strategy: steps and save.steps",
     to::per_epoch},
    {kAxolotl, "gpu_memory_limit", "memory.limit"},
    {kAxolotl, "auto_resume_from_checkpoints", "resume",
     "unknown key; write resume: auto at the top level (the default)"},
    {kAxolotl, "use_tensorboard", "observe.tensorboard"},
    {kAxolotl, "tokens", "model.add_tokens", "", to::list},
    {kAxolotl, "base_model_config", "", "not a key: config.json is in the directory of model.path",
     to::unsaid},
    {kAxolotl, "model_type, is_llama_derived_model, is_qwen_derived_model, is_mistral_derived_model", "",
     "not a key: it is read from the model's config.json", to::unsaid},
    {kAxolotl, "tokenizer_type", "", "not a key: it is read from the model's files", to::unsaid},
    {kAxolotl, "pad_to_sequence_len", "", "not a key: samples are padded to the longest of their micro-batch",
     to::unsaid},
    {kAxolotl, "dataset_prepared_path", "",
     "not a key: cached data is renewed when the files change (data.cache)", to::unsaid},
    {kAxolotl, "lora_fan_in_fan_out", "", "not a key: this is always off; remove the line", to::unsaid},
    {kAxolotl, "lora_on_cpu, eval_table_size", "", kNoPlace},
    {kAxolotl, "cosine_min_lr_ratio", "", kLater},
    {kAxolotl, "float16", "", "not supported; write model.dtype: bf16", to::half},
    {kAxolotl, "flash_attention, xformers_attention, sdp_attention", "", kFlash, to::unsaid},
    {kAxolotl, "use_wandb, wandb_project, wandb_entity, wandb_run_id, wandb_name, wandb", "observe.report_to",
     "unknown key; write observe.report_to: [wandb]; the project is that of WANDB_PROJECT "
     "(docs/observing.md)",
     to::wandb},
    {kAxolotl, "use_mlflow, mlflow_tracking_uri, mlflow_experiment_name, mlflow_run_name",
     "observe.report_to",
     "unknown key; write observe.report_to: [mlflow]; the experiment is that of MLFLOW_EXPERIMENT_NAME "
     "(docs/observing.md)",
     to::mlflow},
    {kAxolotl, "special_tokens", "", "not a key: special tokens are read from the tokenizer's files"},
    {kAxolotl, "rl", "objective.name",
     "unknown key; for preferences write objective.name: dpo (docs/preferences.md)"},
    {kAxolotl, "rl_beta", "objective.beta"},
    {kAxolotl, "kto_desirable_weight", "objective.desirable_weight"},
    {kAxolotl, "kto_undesirable_weight", "objective.undesirable_weight"},
    {kAxolotl, "strict", "", kAlways, to::unsaid},
    {kAxolotl, "debug", "", "not a key; use the option --verbose", to::unsaid},
    {kAxolotl, "<<", "", "YAML merge keys are not supported; to build on another file use `extends: FILE`"},
    {kTorchtune, "model.lora_rank", "lora.r"},
    {kTorchtune, "model.lora_alpha", "lora.lora_alpha"},
    {kTorchtune, "model.lora_dropout", "lora.lora_dropout"},
    {kTorchtune, "model.lora_attn_modules", "lora.target_modules",
     "unknown key; here it is called lora.target_modules, with apply_lora_to_mlp and apply_lora_to_output"},
    {kTorchtune, "model.quantize_base", "model.quantize", kQuantized, to::unsaid},
    {kTorchtune, "checkpointer.checkpoint_dir", "model.path"},
    {kTorchtune, "tokenizer.max_seq_len", "data.max_length"},
    {kTorchtune, "dataset.train_on_input", "data.loss_on: everything"},
    {kTorchtune, "dataset.packed", "data.packing: true"},
    {kTorchtune, "model.use_dora", "lora.use_dora: true"},
    {kTorchtune, "optimizer.lr", "optimizer.learning_rate"},
    {kTorchtune, "optimizer.weight_decay", "optimizer.weight_decay"},
    {kTorchtune, "optimizer.eps", "optimizer.adam_epsilon"},
    {kTorchtune, "lr_scheduler.num_warmup_steps", "optimizer.warmup_steps"},
    {kTorchtune, "log_every_n_steps", "training.logging_steps", "", to::count},
    {kTorchtune, "enable_activation_checkpointing", "memory.gradient_checkpointing", "", to::flag},
    {kTorchtune, "enable_activation_offloading", "memory.offload: [activations]"},
    {kTorchtune, "max_steps_per_epoch", "", "unknown key; training.max_steps counts the updates of the run"},
    {kTorchtune, "optimizer_in_bwd", "",
     "not supported; memory.offload and optimizer.name: adamw_8bit save memory"},
    {kHf, "fp16", "", "not supported: fp16 gives NaN on T5 and needs loss scaling; write model.dtype: bf16",
     to::half},
    {kHf, "per_device_train_batch_size, per_gpu_train_batch_size, train_batch_size", "training.batch_size"},
    {kHf, "predict_with_generate", "evaluation.generate"},
    {kHf, "generation_max_length", "evaluation.max_new_tokens"},
    {kHf, "generation_num_beams", "evaluation.num_beams"},
    {kHf, "max_eval_samples", "evaluation.max_samples"},
    {kHf, "per_device_eval_batch_size, per_gpu_eval_batch_size", "training.eval_batch_size"},
    {kHf, "gradient_accumulation, accumulate_grad_batches", "training.gradient_accumulation_steps"},
    {kHf, "lr, peak_lr", "optimizer.learning_rate"},
    {kHf, "wd", "optimizer.weight_decay"},
    {kHf, "beta1", "optimizer.adam_beta1"},
    {kHf, "beta2", "optimizer.adam_beta2"},
    {kHf, "eps, epsilon, adam_eps", "optimizer.adam_epsilon"},
    {kHf, "optim", "optimizer.name", "", to::optimizer},
    {kHf, "adafactor", "optimizer.name: adafactor"},
    {kHf, "scheduler, lr_scheduler_type", "optimizer.lr_scheduler_type", "", to::schedule},
    {kHf, "warmup, num_warmup_steps, warmup_steps", "optimizer.warmup_steps", "", to::warmup},
    {kHf, "warmup_proportion, warmup_ratio", "optimizer.warmup_ratio", "", to::warmup_share},
    {kHf, "epochs, max_epochs, num_epoch", "training.num_train_epochs"},
    {kHf, "num_train_steps, max_train_steps, train_steps, total_steps", "training.max_steps"},
    {kHf, "clip_grad_norm, grad_clip, gradient_clip_val, gradient_clipping", "training.max_grad_norm"},
    {kHf, "evaluation_strategy, eval_strategy", "training.eval_strategy", "", to::strategy},
    {kHf, "log_every, log_interval, logging_steps", "training.logging_steps", "", to::count},
    {kHf, "run_name", "output_dir", "unknown key; a run is named by its output_dir"},
    {kHf, "save_strategy", "save.strategy", "", to::strategy},
    {kHf, "save_steps, save_interval, checkpointing_steps", "save.steps", "", to::count},
    {kHf, "save_total_limit, keep_checkpoints", "save.total_limit"},
    {kHf, "save_only_model", "save.weights_only"},
    {kHf, "resume_from_checkpoint", "resume",
     "unknown key; write resume: auto at the top level, or resume: DIRECTORY", to::resume},
    {kHf, "async_save", "save.async"},
    {kHf, "bf16, bf16_full_eval", "model.dtype: bf16"},
    {kHf, "fp32", "model.dtype: fp32"},
    {kHf, "allow_tf32, tf32", "training.tf32", "", to::flag},
    {kHf, "torch_dtype, mixed_precision, precision, dtype", "model.dtype", "", to::dtype},
    {kHf, "activation_checkpointing, gradient_checkpointing", "memory.gradient_checkpointing", "",
     to::recompute},
    {kHf, "torch_empty_cache_steps", "memory.empty_cache_steps"},
    {kHf, "max_split_size", "memory.max_split_size_mb"},
    {kHf, "roundup_power2", "memory.roundup_power2_divisions"},
    {kHf, "gc_threshold", "memory.garbage_collection_threshold"},
    {kHf, "no_cuda, use_cpu", "device: cpu"},
    {kHf, "world_size, num_processes, num_gpus, n_gpu, nproc_per_node", "parallel.gpus",
     "unknown key; did you mean parallel.gpus? Processes on several machines are started by torchrun or srun "
     "(docs/parallel.md)"},
    {kHf, "deepspeed, zero_stage, zero_optimization, fsdp, fsdp_config", "parallel.shard",
     "unknown key; did you mean parallel.shard? It shards the optimizer's state, or weights too, among GPUs "
     "(docs/parallel.md)"},
    {kHf, "ddp_timeout", "parallel.timeout"},
    {kHf, "device_map", "device",
     "unknown key; write device: cuda:0 at the top level; a model is on one device"},
    {kHf, "min_gpu_memory", "gpu.min_gpu_memory_mb"},
    {kHf, "min_gpu_memory_gb", "gpu.min_gpu_memory_mb",
     "unknown key; write gpu.min_gpu_memory_mb: 1000 for 1 GB"},
    {kHf, "gpu_wait_timeout, wait_timeout_minutes", "gpu.gpu_wait_timeout_minutes"},
    {kHf, "gpu_check_interval, check_interval_seconds", "gpu.gpu_check_interval_seconds"},
    {kHf, "auto_device", "device: auto"},
    {kHf, "data_seed, random_seed", "seed"},
    {kHf, "full_determinism", "training.deterministic"},
    {kHf, "dataloader_num_workers, num_proc", "training.num_workers"},
    {kHf, "dataloader_prefetch_factor", "data.prefetch"},
    {kHf, "omp_num_threads", "training.num_threads"},
    {kHf, "group_by_length", "training.micro_batching",
     "unknown key; write training.micro_batching: tokens (the default)", to::grouped_by_length},
    {kHf, "label_smoothing_factor", "training.label_smoothing"},
    {kHf, "neftune_alpha, noisy_embedding_alpha", "training.neftune_noise_alpha"},
    {kHf, "precompute_ref_log_probs", "objective.reference: kept"},
    {kHf, "reference_free", "objective.reference: none"},
    {kHf, "simpo_gamma", "objective.gamma"},
    {kHf, "cpo_alpha", "objective.rpo_alpha"},
    {kHf, "max_seq_length, max_seq_len, model_max_length, block_size", "data.max_length"},
    {kHf, "max_input_length, source_max_length", "data.max_source_length"},
    {kHf, "max_output_length, target_max_length", "data.max_target_length"},
    {kHf, "source_prefix", "data.input",
     "unknown key; write the prefix into the template of data.input: \"translate: {field}\""},
    {kHf, "text_column, source_column, input_column", "data.input"},
    {kHf, "dataset_text_field", "data.input", "unknown key; write data.kind: text and data.input: FIELD"},
    {kHf, "summary_column, target_column", "data.target"},
    {kHf, "train_file, train_data, train_path", "data.train"},
    {kHf, "validation_file, eval_file, eval_data, valid_data, test_file, eval_dataset", "data.eval"},
    {kHf, "alpha", "lora.lora_alpha"},
    {kHf, "rank", "lora.r"},
    {kHf, "peft", "lora", "unknown key; LoRA is the section `lora:`"},
    {kHf, "use_peft, use_lora", "lora", "unknown key; a section `lora: {}` turns LoRA on"},
    {kHf, "load_in_4bit, load_in_8bit", "model.quantize", kQuantized, to::four_bits},
    {kHf, "model, model_name, model_id, pretrained_model_name_or_path, base_model_name_or_path",
     "model.path"},
    {kHf, "bnb_4bit_quant_type, quantization_type", "model.quantize", "", to::quantized_as},
    {kHf, "bnb_4bit_use_double_quant, double_quantization", "model.double_quant", "", to::double_quantized},
    {kHf, "eval_steps", "training.eval_steps", "", to::count},
    {kHf, "metric_for_best_model", "training.metric_for_best_model", "", to::metric},
    {kHf,
     "optim_args, eval_accumulation_steps, prediction_loss_only, half_precision_backend, "
     "dataloader_pin_memory, dataloader_persistent_workers, length_column_name, label_names, torch_compile, "
     "torchdynamo, jit_mode_eval",
     "", kNoPlace},
    {kHf,
     "lr_scheduler_kwargs, eval_on_start, eval_delay, logging_first_step, early_stopping_threshold, "
     "max_memory",
     "", kLater},
    {kHf, "do_eval", "", "unknown key; data.eval: FILE is enough, training.eval_strategy says when"},
    {kHf, "do_train", "", "not a key: the command `trainer train` trains", to::unsaid},
    {kHf, "do_predict", "", "not a key; `trainer generate` shows what a model answers"},
    {kHf, "logging_strategy", "", "unknown key; progress is logged every training.logging_steps updates"},
    {kHf, "logging_dir", "",
     "not a key; metrics.jsonl, log.txt, report.html and tensorboard/ are in output_dir"},
    {kHf, "log_level", "", "not a key; use the options --quiet and --verbose"},
    {kHf, "disable_tqdm", "", "not a key; use the option --quiet"},
    {kHf, "report_to", "observe.report_to",
     "unknown key; here it is observe.report_to: [wandb], mlflow or trackio; TensorBoard is "
     "observe.tensorboard: true (the default)",
     to::services},
    {kHf,
     "save_safetensors, restore_callback_states_from_checkpoint, auto_find_batch_size, "
     "include_num_input_tokens_seen, average_tokens_across_devices",
     "", kAlways},
    {kHf, "greater_is_better", "", "not a key: it follows from training.metric_for_best_model"},
    {kHf, "ignore_data_skip", "", "not a key: a resumed run never has to read data just to skip it"},
    {kHf, "fp16_full_eval", "", "not supported; write model.dtype: bf16"},
    {kHf, "use_cache", "", "not a key: training has no KV cache, generation has one"},
    {kHf, "gradient_checkpointing_kwargs", "",
     "not supported; memory.gradient_checkpointing is true, false, light, auto or a number"},
    {kHf, "pytorch_alloc_conf, pytorch_cuda_alloc_conf, cuda_alloc_conf", "",
     "unknown key; here its parts are memory.expandable_segments, memory.max_split_size_mb, "
     "memory.roundup_power2_divisions and memory.garbage_collection_threshold; if it is set in the "
     "environment, that setting is used"},
    {kHf, "num_machines, nnodes, local_rank, master_addr, master_port", "",
     "not a key; a process takes its place from the variables of torchrun or srun (docs/parallel.md)"},
    {kHf, "ddp_find_unused_parameters, ddp_backend, parallelism_config, accelerator_config", "",
     "not a key: how GPUs work together is set in the section parallel"},
    {kHf, "dataloader_drop_last", "",
     "not supported: the last update of an epoch uses the samples that are left"},
    {kHf, "remove_unused_columns", "",
     "not a key: fields that data.input and data.target do not name are ignored"},
    {kHf, "push_to_hub, hub_model_id, hub_token, hub_strategy, cache_dir", "",
     "not supported: nothing is uploaded; downloads follow HF_HUB_CACHE, HF_TOKEN and the like "
     "(docs/model-names.md)"},
    {kHf, "bias", "", "not supported: LoRA trains no biases"},
    {kHf, "init_lora_weights", "", "not a key: A is random and B is zero, as is PEFT's default"},
    {kHf, "task_type", "", "not a key: it follows from the model"},
    {kHf, "peft_type", "", "not a key: a section `lora:` means LoRA"},
    {kHf, "bnb_4bit_compute_dtype", "", kQuantized, to::unsaid},
    {kHf, "attn_implementation", "", kFlash},
    {kHf, "tokenizer_name", "", "not a key: the tokenizer is the one in the directory of model.path"},
    {kHf, "trust_remote_code", "", "not supported: no code of a model is run"},
};

// `lora_r`, without those that are called so here, too.
std::string in_page(const ForeignKey& key) {
  std::vector<std::string> names = key.names();
  std::erase_if(
      names, [&](const std::string& name) { return key.key() == name || key.key().ends_with("." + name); });
  return names.empty() ? "" : concat("`", join(names, "`, `"), "`");
}

}  // namespace

std::span<const ForeignKey> foreign_keys() { return kForeignKeys; }

std::vector<std::string> ForeignKey::names() const {
  std::vector<std::string> names;
  std::istringstream list(theirs);
  for (std::string name; std::getline(list >> std::ws, name, ',');) names.push_back(name);
  return names;
}

const ForeignKey* find_foreign_key(const std::string& name) {
  static const auto index = [] {
    std::unordered_map<std::string, const ForeignKey*> keys;
    for (const ForeignKey& key : kForeignKeys) {
      for (const std::string& theirs : key.names()) keys.emplace(theirs, &key);
    }
    return keys;
  }();
  const auto found = index.find(name);
  return found == index.end() ? nullptr : found->second;
}

std::string answer_to(const ForeignKey& key) {
  if (*key.note != '\0') return key.note;
  if (!key.is_value()) return concat("unknown key; here it is called ", key.ours);
  return concat("unknown key; write ", key.ours,
                key.key().find('.') == std::string::npos ? " at the top level" : "");
}

std::string reason_of(const ForeignKey& key) {
  std::string reason = answer_to(key);
  for (const std::string_view words : {"unknown key; ", "not a key: ", "; remove the line"}) {
    if (const size_t at = reason.find(words); at != std::string::npos) reason.erase(at, words.size());
  }
  return reason;
}

void write_foreign_keys(std::ostream& out) {
  const std::pair<Program, const char*> headings[] = {{kHf, "Hugging Face Trainer, PEFT, TRL"},
                                                      {kAxolotl, "axolotl"},
                                                      {kFactory, "LLaMA-Factory"},
                                                      {kTorchtune, "torchtune"}};
  for (const auto& [program, title] : headings) {
    out << "\n### " << title << "\n\n| There | Here |\n| --- | --- |\n";
    for (const ForeignKey& key : kForeignKeys) {
      const std::string names = in_page(key);
      if (key.program != program || names.empty() || *key.ours == '\0') continue;
      out << "| " << names << " | `" << key.ours << (*key.note == '\0' ? "`" : "`: " + reason_of(key))
          << " |\n";
    }
  }
  out << "\n";
}

}  // namespace trainer::config
