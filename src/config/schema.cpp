// A long table on purpose: the one place where keys are described.
#include "config/schema.h"

#include "config/declare.h"
#include "config/sections.h"

namespace trainer::config {
namespace {

Section model_section() {
  using M = ModelConfig;
  return section(
      "model", "What is trained.",
      {key(&M::path, "path", OnResume::fixes_run_by_content,
           "Directory of the model, as Hugging Face stores it: config.json, *.safetensors and the "
           "tokenizer's files. Nothing is downloaded.")
           .path(),
       key(&M::dtype, "dtype", OnResume::fixes_run_by_content,
           "Type of the weights in memory. auto: bf16 where the device computes in it, else fp32.")
           .refuses("fp16",
                    "gives NaN on T5 and needs loss scaling; use bf16, or fp32 where the GPU has no bf16")
           .refuses("float16",
                    "gives NaN on T5 and needs loss scaling; use bf16, or fp32 where the GPU has no bf16")
           .refuses("bfloat16", "is called bf16 here")
           .refuses("float32", "is called fp32 here"),
       key(&M::add_tokens, "add_tokens", OnResume::fixes_run,
           "Tokens that the tokenizer shall have, too. A list of texts. Where they need more rows, the "
           "embedding and a separate head get them, as the mean of the others; both are then trained and "
           "saved, with LoRA beside the adapter, and the tokenizer with them.")});
}

Section lora_section() {
  using L = LoraConfig;
  return optional_section(
      "lora",
      "Train small low-rank matrices beside frozen weights. Without this section (`lora: null`) all weights "
      "are "
      "trained; `lora: {}` takes the defaults below.",
      {key(&L::r, "r", OnResume::fixes_run, "Rank of the matrices.").at_least(1),
       key(&L::lora_alpha, "lora_alpha", OnResume::fixes_run,
           "Scale of what they add. It is multiplied by lora_alpha / r; with use_rslora by lora_alpha / "
           "sqrt(r).")
           .above(0),
       key(&L::lora_dropout, "lora_dropout", OnResume::is_logged, "Dropout on their input.")
           .at_least(0)
           .below(1),
       key(&L::target_modules, "target_modules", OnResume::fixes_run,
           "Which linear layers get them. A list of name endings ([q, v]), one regular expression for the "
           "whole name, "
           "or all-linear (the output head left out). Empty: the model's default, q and v of T5, q_proj and "
           "v_proj of "
           "Qwen and Llama."),
       key(&L::exclude_modules, "exclude_modules", OnResume::fixes_run,
           "Modules that get none though target_modules names them. A list of name endings, or one regular "
           "expression for the whole name."),
       key(&L::layers_to_transform, "layers_to_transform", OnResume::fixes_run,
           "Indices of the layers that get them. One or a list, counted from 0; empty: all. Goes with a list "
           "of target_modules.")
           .at_least(0),
       key(&L::layers_pattern, "layers_pattern", OnResume::fixes_run,
           "What the list of layers is called in the model's names. Such as layers or block; empty: found. "
           "Goes with layers_to_transform."),
       key(&L::rank_pattern, "rank_pattern", OnResume::fixes_run,
           "Ranks that differ from r. A mapping of name endings, or regular expressions for them, to ranks; "
           "the first that fits counts: {q_proj: 16, \"layers.0.*\": 4}.")
           .at_least(1),
       key(&L::alpha_pattern, "alpha_pattern", OnResume::fixes_run,
           "Scales that differ from lora_alpha. As rank_pattern.")
           .above(0),
       key(&L::use_rslora, "use_rslora", OnResume::fixes_run, "Rank-stabilised scale, lora_alpha / sqrt(r)."),
       key(&L::use_dora, "use_dora", OnResume::fixes_run,
           "Also train the magnitude of each output (DoRA). The weights' norms are made again in every step, "
           "so that it is slower than LoRA."),
       key(&L::modules_to_save, "modules_to_save", OnResume::fixes_run,
           "Modules that are trained and saved in full beside the matrices. A list of name endings; as in "
           "PEFT, "
           "norm is also input_layernorm."),
       key(&L::adapter, "adapter", OnResume::fixes_run_by_content,
           "Directory of a PEFT adapter to start from. Its rank, scale and targets are used.")
           .path()});
}

Section training_section() {
  using T = TrainingConfig;
  return section(
      "training", "How long, and in which portions.",
      {key(&T::batch_size, "batch_size", OnResume::may_change,
           "Micro-batch: how much goes through the model at once. Counted in samples of full length: at most "
           "batch_size x max_source_length tokens (and the same for targets), so that more short samples go "
           "together. With effective_batch_size it decides memory and speed only, never the result. auto: "
           "what "
           "the memory plan finds fastest, with effective_batch_size as it is.")
           .at_least(1)
           .in("samples"),
       key(&T::gradient_accumulation_steps, "gradient_accumulation_steps", OnResume::may_change,
           "Micro-batches of one update: it has batch_size times as many samples. Either this or "
           "effective_batch_size.")
           .at_least(1),
       key(&T::effective_batch_size, "effective_batch_size", OnResume::fixes_run_by_content,
           "Samples of one update. Unlike gradient_accumulation_steps it stays the same when batch_size "
           "changes. "
           "Default: batch_size x gradient_accumulation_steps.")
           .at_least(1)
           .in("samples"),
       key(&T::num_train_epochs, "num_train_epochs", OnResume::is_logged,
           "How often the data is gone through. A fraction stops inside an epoch.")
           .above(0)
           .in("epochs"),
       key(&T::max_steps, "max_steps", OnResume::is_logged,
           "Updates in all. -1: as many as num_train_epochs makes.")
           .at_least(-1)
           .in("steps"),
       key(&T::max_hours, "max_hours", OnResume::may_change,
           "Save and end with exit code 75 before this start has taken longer; the same command goes on. 0: "
           "no "
           "limit.")
           .at_least(0)
           .in("hours"),
       key(&T::micro_batching, "micro_batching", OnResume::may_change,
           "How the samples of an update are cut. tokens: ordered by length, little padding. samples: "
           "batch_size "
           "samples each, in order."),
       key(&T::max_grad_norm, "max_grad_norm", OnResume::is_logged,
           "Gradients with a larger norm are scaled down to it. 0: never.")
           .at_least(0),
       key(&T::max_bad_steps, "max_bad_steps", OnResume::may_change,
           "Steps in a row with a loss or gradient that is not finite after which the run ends with exit "
           "code "
           "7. Such a step is not applied, and its samples are named. 0: the first one ends the run.")
           .at_least(0)
           .in("steps"),
       key(&T::eval_strategy, "eval_strategy", OnResume::may_change,
           "When to evaluate on data.eval. Every eval_steps, every epoch, or not."),
       key(&T::eval_steps, "eval_steps", OnResume::may_change,
           "Updates between evaluations. For eval_strategy: steps.")
           .at_least(1)
           .in("steps"),
       key(&T::eval_batch_size, "eval_batch_size", OnResume::may_change,
           "As batch_size, in evaluation. Default: batch_size.")
           .at_least(1)
           .in("samples"),
       key(&T::load_best_model_at_end, "load_best_model_at_end", OnResume::may_change,
           "Save the weights of the best evaluation as the result. Each evaluation that is better than all "
           "before is then followed by a checkpoint."),
       key(&T::metric_for_best_model, "metric_for_best_model", OnResume::may_change,
           "Which number of an evaluation says what is best. loss, perplexity, token_accuracy, or one of "
           "generated answers: exact_match, f1, rouge1, rouge2, rougeL, bleu, chrf, json_valid, json_match. "
           "Loss and perplexity shall be small, the others large.")
           .matching("^(eval_)?(loss|perplexity|token_accuracy|exact_match|f1|rouge1|rouge2|rougeL|bleu|chrf|"
                     "json_valid|json_match)$",
                     "a number that an evaluation gives, such as loss or rougeL"),
       key(&T::early_stopping_patience, "early_stopping_patience", OnResume::may_change,
           "End after so many evaluations in a row without a better one. 0: do not.")
           .at_least(0)
           .in("evaluations"),
       key(&T::logging_steps, "logging_steps", OnResume::may_change, "Updates between lines of progress.")
           .at_least(1)
           .in("steps"),
       key(&T::num_workers, "num_workers", OnResume::may_change, "Threads that read and tokenise the data.")
           .at_least(1)
           .in("threads"),
       key(&T::num_threads, "num_threads", OnResume::may_change,
           "Threads that compute on the CPU. 0: OMP_NUM_THREADS, else one per core.")
           .at_least(0)
           .in("threads"),
       key(&T::label_smoothing, "label_smoothing", OnResume::is_logged,
           "Part of the target's weight that is spread over all tokens.")
           .at_least(0)
           .below(1),
       key(&T::dropout, "dropout", OnResume::is_logged,
           "Dropout of the model. Default: as its config.json says.")
           .at_least(0)
           .below(1),
       key(&T::tf32, "tf32", OnResume::may_change,
           "Multiply fp32 matrices in TF32 on GPUs that have it. Much faster there, with 10 bits of mantissa "
           "in the factors."),
       key(&T::replay_cuts, "replay_cuts", OnResume::may_change,
           "Cut each step as another run did: its metrics.jsonl. For comparing runs to the last bit.")
           .path()});
}

Section optimizer_section() {
  using O = OptimizerConfig;
  return section(
      "optimizer", "How weights are updated.",
      {key(&O::name, "name", OnResume::fixes_run, "The optimizer.").one_of({"adamw"}),
       key(&O::learning_rate, "learning_rate", OnResume::is_logged, "Highest learning rate of the schedule.")
           .at_least(0),
       key(&O::weight_decay, "weight_decay", OnResume::is_logged,
           "Decoupled weight decay. Norms and biases have none.")
           .at_least(0),
       key(&O::adam_beta1, "adam_beta1", OnResume::is_logged, "Decay of the mean of gradients.")
           .at_least(0)
           .below(1),
       key(&O::adam_beta2, "adam_beta2", OnResume::is_logged, "Decay of the mean of squared gradients.")
           .at_least(0)
           .below(1),
       key(&O::adam_epsilon, "adam_epsilon", OnResume::is_logged, "Added to the denominator.").at_least(0),
       key(&O::lr_scheduler_type, "lr_scheduler_type", OnResume::is_logged,
           "How the learning rate goes on after the warm-up. As the schedule of that name in Transformers."),
       key(&O::warmup_steps, "warmup_steps", OnResume::is_logged,
           "Updates in which the learning rate rises from 0. Either this or warmup_ratio.")
           .at_least(0)
           .in("steps"),
       key(&O::warmup_ratio, "warmup_ratio", OnResume::is_logged, "The same as a part of all updates.")
           .at_least(0)
           .below(1),
       key(&O::master_weights, "master_weights", OnResume::fixes_run,
           "Keep an fp32 copy of bf16 weights for the updates. 4 bytes a parameter more; without it bf16 "
           "weights are "
           "rounded stochastically. Only for full fine-tuning: LoRA matrices are fp32 anyway."),
       key(&O::state_dtype, "state_dtype", OnResume::fixes_run,
           "Type of the optimizer's two moments. auto: bf16 beside bf16 weights, fp32 beside fp32 weights or "
           "an fp32 "
           "copy of them."),
       key(&O::grad_dtype, "grad_dtype", OnResume::is_logged,
           "Type in which gradients are summed. auto: that of the weights.")});
}

Section top_level() {
  return section(
      "", "At the top level of the file, without a section.",
      {key(&Config::device, "device", OnResume::may_change,
           "Where to compute. auto, cpu, cuda or cuda:N; auto and cuda take the GPU with the most free "
           "memory, "
           "auto the CPU where there is no GPU. The section gpu says more.")
           .matching("^(auto|cpu|cuda(:[0-9]{1,3})?)$", "auto, cpu, cuda or cuda:N"),
       key(&Config::seed, "seed", OnResume::fixes_run,
           "Where all randomness comes from: order of samples, dropout, new weights.")
           .at_least(0),
       key(&Config::output_dir, "output_dir", OnResume::may_change,
           "Directory for the result, checkpoints, metrics.jsonl and log.txt.")
           .path()
           .matching("^(.|\\n)+$", "a directory"),
       key(&Config::overwrite_output_dir, "overwrite_output_dir", OnResume::may_change,
           "Start anew in an output_dir that holds results; they are removed first."),
       key(&Config::resume, "resume", OnResume::may_change,
           "What a run goes on from. auto: the newest whole checkpoint in output_dir, where the same run was "
           "stopped. never: an output_dir with results is refused. Or the directory of a checkpoint: it is "
           "gone back to at every start where it lies in output_dir; elsewhere it is where a run begins.")
           .path()
           .matching("^(.|\\n)+$", "auto, never, or the directory of a checkpoint"),
       key(&Config::resume_changed, "resume_changed", OnResume::may_change,
           "Keys that may differ from the run that is gone on with. Without this, other data, another seed "
           "and "
           "the like are an error that says which. A key or a list of keys: [data.train, seed].")});
}

}  // namespace

const std::vector<Section>& schema() {
  static const std::vector<Section> sections{model_section(),    lora_section(),       data_section(),
                                             training_section(), evaluation_section(), optimizer_section(),
                                             save_section(),     memory_section(),     gpu_section(),
                                             recovery_section(), top_level()};
  return sections;
}

const Section* find_section(const std::string& name) {
  for (const Section& section : schema()) {
    if (section.name == name && !name.empty()) return &section;
  }
  return nullptr;
}

const Key* find_key(const std::string& section, const std::string& name) {
  for (const Key* key : keys_named(name)) {
    if (key->section == section) return key;
  }
  return nullptr;
}

const Key* find_key(const std::string& full_name) {
  const size_t dot = full_name.find('.');
  if (dot == std::string::npos) return find_key("", full_name);
  return find_key(full_name.substr(0, dot), full_name.substr(dot + 1));
}

std::vector<const Key*> keys_named(const std::string& name) {
  std::vector<const Key*> found;
  for (const Section& section : schema()) {
    for (const Key& key : section.keys) {
      if (key.name == name) found.push_back(&key);
    }
  }
  return found;
}

const std::vector<std::pair<std::string, std::string>>& alternatives() {
  static const std::vector<std::pair<std::string, std::string>> pairs{
      {"training.gradient_accumulation_steps", "training.effective_batch_size"},
      {"optimizer.warmup_steps", "optimizer.warmup_ratio"}};
  return pairs;
}

}  // namespace trainer::config
