// What other programs do without a key, where that is not what ours does: transformers 5.24, trl 1.16,
// axolotl 0.19, LLaMA-Factory 0.9.5, torchtune 0.7 with torch 2.11.
#include <algorithm>
#include <cstdint>
#include <string>

#include "trainer/base/strings.h"

#include "config/import_settings.h"

namespace trainer::config {
namespace {

// Their program leaves the type of the weights to the model's file, ours to the device.
void say_type_of_weights(const GivenKeys& keys, ImportedSettings& settings) {
  if (settings.has("model.dtype")) return;
  const char* given =
      keys.was_given("bf16") || keys.was_given("fp16") ? "bf16, fp16: are off" : "bf16, fp16: are not set";
  settings.change(given,
                  "there the weights keep the type of the model's file; here model.dtype: auto is bf16 where "
                  "the device computes in it. For a file in fp32 write model.dtype: fp32");
}

// Their program cuts no sample; ours ends the run instead of cutting one.
void cut_nothing(const std::string& name, const std::string& from, ImportedSettings& settings) {
  settings.their_default("data.max_truncated", "0", concat(from, ": nothing is cut"));
  settings.change(
      name,
      "is not set: there samples of any length are learned; here the run ends if one is longer than "
      "data.max_length: make that as large as the longest");
}

// peft.LoraConfig
void add_lora_of_peft(ImportedSettings& settings) {
  if (!settings.lora()) return;
  settings.their_default("lora.r", "8", "PEFT's default");
  settings.their_default("lora.lora_alpha", "8", "PEFT's default");
  settings.their_default("lora.target_modules", "[]", "PEFT's default for the model");
}

void add_no_warmup(ImportedSettings& settings) {
  if (!settings.has("optimizer.warmup_steps")) settings.their_default("optimizer.warmup_ratio", "0");
}

// transformers.TrainingArguments, on which trl and LLaMA-Factory build. torch multiplies fp32 in full unless
// it is told otherwise.
void add_training_arguments(const GivenKeys& keys, ImportedSettings& settings) {
  settings.their_default("training.num_train_epochs", "3");
  if (keys.was_null("max_grad_norm")) {
    settings.their_default("training.max_grad_norm", "0", "max_grad_norm: null clips nothing there");
  } else {
    settings.their_default("training.max_grad_norm", "1");
  }
  settings.their_default("training.tf32", "false");
  settings.their_default("optimizer.name", "adamw");
  settings.their_default("optimizer.learning_rate", "5.0e-05");
  settings.their_default("optimizer.lr_scheduler_type", "linear");
  settings.their_default("optimizer.weight_decay", "0");
  add_no_warmup(settings);
  settings.their_default("save.strategy", "steps");
  settings.their_default("save.steps", "500");
  settings.their_default("save.total_limit", "0", "all are kept, their default");
  settings.their_default("seed", "42");
  settings.their_default("training.logging_steps", "500");
  if (!settings.has("data.eval")) return;
  settings.their_default("training.eval_strategy", "no");
  settings.their_default("training.eval_batch_size", "8");
  const std::string strategy = keys.given_text("eval_strategy").value_or("");
  if (strategy.ends_with("steps") || strategy.ends_with("STEPS"))
    settings.their_default("training.eval_steps", keys.given_text("logging_steps").value_or("500"),
                           "logging_steps, their default");
}

}  // namespace

void add_defaults_of_hugging_face(const GivenKeys& keys, ImportedSettings& settings) {
  add_training_arguments(keys, settings);
  add_lora_of_peft(settings);
  say_type_of_weights(keys, settings);
  const bool has_length = settings.has("data.max_length") || settings.has("data.max_source_length");
  if (!has_length)
    settings.change("the length of samples",
                    "is no part of TrainingArguments: the script says it; here data.max_length is 1024, and "
                    "data.max_source_length and data.max_target_length are 512");
}

void add_defaults_of_trl(const GivenKeys& keys, ImportedSettings& settings) {
  const bool preferences = settings.has("objective.name");
  settings.their_default("optimizer.learning_rate", preferences ? "1.0e-06" : "2.0e-05");
  settings.their_default("training.logging_steps", "10");
  settings.their_default("memory.gradient_checkpointing", "true");
  if (keys.was_null("max_length")) {
    cut_nothing("max_length", "max_length: null", settings);
  } else {
    settings.their_default("data.max_length", "1024");
  }
  if (settings.lora()) {
    settings.their_default("lora.r", "16");
    settings.their_default("lora.lora_alpha", "32");
    settings.their_default("lora.lora_dropout", "0.05");
    add_lora_of_peft(settings);
  }
  if (!keys.was_given("fp16") && !keys.was_given("bf16")) settings.their_default("model.dtype", "bf16");
  if (!preferences && !keys.was_given("assistant_only_loss"))
    settings.change("assistant_only_loss",
                    "is not set: there all of a conversation in `messages` is learned; here the answers, "
                    "unless data.loss_on is everything");
  add_training_arguments(keys, settings);
}

void add_defaults_of_axolotl(const GivenKeys& keys, ImportedSettings& settings) {
  const auto is_off = [&](const char* name) { return keys.was_given(name) && !keys.was_true(name); };
  const bool has_half = keys.was_true("fp16") || keys.was_true("float16") || keys.was_true("bfloat16");
  if (is_off("bf16") && !has_half && !keys.was_true("load_in_8bit"))
    settings.their_default("model.dtype", "fp32", "their default without bf16 and fp16");
  settings.their_default("data.max_length", "512", "sequence_len, their default");
  settings.their_default("data.long_samples", "drop", "excess_length_strategy, their default");
  settings.their_default("training.num_train_epochs", "1");
  settings.their_default("training.max_grad_norm", "1");
  settings.their_default("optimizer.name", "adamw");
  settings.their_default("optimizer.lr_scheduler_type", "cosine");
  settings.their_default("optimizer.weight_decay", "0");
  settings.their_default("save.total_limit", "4");
  settings.their_default("save.strategy", settings.has("save.steps") ? "steps" : "epoch");
  settings.their_default("seed", "42");
  if (settings.has("data.eval")) {
    const char* strategy = settings.has("training.eval_steps") ? "steps" : "epoch";
    settings.their_default("training.eval_strategy", keys.was_given("eval_steps") ? strategy : "no");
  }
  if (keys.was_given("warmup_steps") || keys.was_given("warmup_ratio")) return;
  constexpr int64_t kMostWarmup = 100;
  const auto steps = keys.given_number("max_steps");
  if (steps && *steps > 0) {
    const auto warmup = std::min(static_cast<int64_t>(0.03 * *steps), kMostWarmup);
    settings.their_default("optimizer.warmup_steps", std::to_string(warmup == 1 ? 2 : warmup));
    return;
  }
  settings.their_default("optimizer.warmup_ratio", "0.03");
  settings.change("warmup_ratio", concat("there the warm-up has at most ", kMostWarmup,
                                         " updates, their default; where 3 % of all are more, write "
                                         "optimizer.warmup_steps: 100 instead of optimizer.warmup_ratio"));
}

void add_defaults_of_llama_factory(const GivenKeys& keys, ImportedSettings& settings) {
  add_training_arguments(keys, settings);
  say_type_of_weights(keys, settings);
  settings.their_default("data.long_samples", "truncate");
  settings.change("cutoff_len",
                  "longer samples lose their end here; there input and answer are both shortened");
}

void add_defaults_of_torchtune(const GivenKeys& keys, ImportedSettings& settings) {
  settings.their_default("training.max_grad_norm", "0");
  settings.their_default("training.logging_steps", "1");
  settings.their_default("save.strategy", "epoch");
  settings.their_default("save.total_limit", "0", "all are kept, their default");
  add_no_warmup(settings);
  if (settings.lora()) {
    settings.their_default("lora.r", "8");
    settings.their_default("lora.lora_alpha", "16");
  }
  if (settings.has("data.eval")) settings.their_default("training.eval_strategy", "no");
  if (!settings.has("data.max_length"))
    cut_nothing("tokenizer.max_seq_len", "tokenizer.max_seq_len, their default", settings);
  if (!keys.was_given("seed"))
    settings.change("seed", "is not set: there each start has another one; here it is 42 (seed)");
}

}  // namespace trainer::config
