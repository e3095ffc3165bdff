// What the configurations of other trainers have in common, and Hugging Face TrainingArguments.
#include <algorithm>
#include <cmath>
#include <set>

#include "trainer/base/strings.h"

#include "config/import_settings.h"
#include "config/schema.h"
#include "config/unknown_key.h"
#include "config/value.h"
#include "config/weight_formats.h"

namespace trainer::config {
namespace {

constexpr const char* kCutsSteps = "a share of all updates is not supported; give a number of updates";

std::string lowered(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

void import_dtype(ForeignKeys& keys, ImportedSettings& settings) {
  for (const char* name : {"bf16", "bfloat16", "pure_bf16"}) {
    if (keys.take_flag(name)) settings.set("model.dtype", "bf16", name);
  }
  for (const char* name : {"fp16", "float16"}) {
    if (!keys.take_flag(name)) continue;
    if (settings.has("model.dtype")) continue;
    settings.set("model.dtype", "bf16", name);
    settings.change(name, "fp16 is not supported; bf16 takes the same memory and needs no loss scaling");
  }
  if (keys.take_flag("fp32")) settings.set("model.dtype", "fp32", "fp32");
  for (const char* name : {"torch_dtype", "dtype", "mixed_precision", "precision"}) {
    const auto value = keys.take_text(name);
    if (!value) continue;
    const std::string type = lowered(value->substr(value->find('.') + 1));
    if (type == "auto" || settings.has("model.dtype")) continue;
    if (type.starts_with("bf") || type == "fp16" || type == "float16") {
      settings.set("model.dtype", "bf16", name);
      if (!type.starts_with("bf")) settings.change(name, "fp16 is not supported; bf16 is taken");
    } else if (type == "fp32" || type == "float32" || type == "no") {
      settings.set("model.dtype", "fp32", name);
    } else {
      settings.leave_out(name, *value + " is not supported; model.dtype is bf16, fp32 or auto");
    }
  }
  for (const char* name : {"tf32", "allow_tf32"}) {
    if (const auto value = keys.take(name))
      settings.set("training.tf32", is_true(*value) ? "true" : "false", name);
  }
}

void import_quantisation(ForeignKeys& keys, ImportedSettings& settings) {
  const std::string& four_bits = smallest_weight_format().name;
  const auto quantise = [&](const std::string& from) { settings.set("model.quantize", four_bits, from); };
  if (keys.take_flag("load_in_4bit")) quantise("load_in_4bit");
  if (const auto bits = keys.take_number("quantization_bit")) {
    if (*bits == 4) {
      quantise("quantization_bit");
    } else {
      settings.leave_out("quantization_bit",
                         concat("only 4 bits are supported: model.quantize: ", four_bits));
    }
  }
  if (keys.take_flag("load_in_8bit"))
    settings.leave_out("load_in_8bit", concat("8 bits are not supported; model.quantize: ", four_bits,
                                              " takes half of that"));
  for (const char* name : {"bnb_4bit_quant_type", "quantization_type"}) {
    const auto type = keys.take_text(name);
    if (type && *type != four_bits)
      settings.change(name, concat(*type, " is not supported; ", four_bits, " is taken"));
  }
  for (const char* name : {"bnb_4bit_use_double_quant", "double_quantization"}) {
    const auto value = keys.take(name);
    if (value && settings.has("model.quantize"))
      settings.set("model.double_quant", is_true(*value) ? "true" : "false", name);
  }
  keys.drop({"bnb_4bit_compute_dtype", "quantization_method"});
}

void import_schedule(ForeignKeys& keys, ImportedSettings& settings) {
  for (const char* name : {"lr_scheduler_type", "lr_scheduler"}) {
    const auto value = keys.take_text(name);
    if (!value) continue;
    const std::string type = lowered(value->substr(value->rfind('.') + 1));
    static const std::set<std::string> kKnown{"linear",     "cosine",      "constant", "constant_with_warmup",
                                              "polynomial", "inverse_sqrt"};
    if (kKnown.contains(type)) {
      settings.set("optimizer.lr_scheduler_type", type, name);
    } else if (type.starts_with("cosine")) {
      settings.set("optimizer.lr_scheduler_type", "cosine", name);
      settings.change(name, *value + " is not supported; cosine goes down to 0 once");
    } else {
      settings.leave_out(name,
                         *value + " is not supported; optimizer.lr_scheduler_type: linear is the default");
    }
  }
  if (const auto steps = keys.take_number("warmup_steps")) {
    const bool share = *steps > 0 && *steps < 1;
    if (share || *steps > 0)
      settings.set(share ? "optimizer.warmup_ratio" : "optimizer.warmup_steps",
                   share ? number_as_yaml(*steps) : std::to_string(std::llround(*steps)), "warmup_steps");
  }
  const auto ratio = keys.take_number("warmup_ratio");
  if (ratio && *ratio > 0 && !settings.has("optimizer.warmup_steps"))
    settings.set("optimizer.warmup_ratio", number_as_yaml(*ratio), "warmup_ratio");
}

void import_intervals(ForeignKeys& keys, ImportedSettings& settings) {
  const std::pair<const char*, const char*> counts[] = {{"eval_steps", "training.eval_steps"},
                                                        {"save_steps", "save.steps"},
                                                        {"logging_steps", "training.logging_steps"}};
  for (const auto& [name, key] : counts) {
    const auto steps = keys.take_number(name);
    if (!steps || *steps <= 0) continue;
    if (*steps < 1) {
      settings.leave_out(name, kCutsSteps);
    } else {
      settings.set(key, std::to_string(std::llround(*steps)), name);
    }
  }
  const std::pair<const char*, const char*> strategies[] = {{"eval_strategy", "training.eval_strategy"},
                                                            {"evaluation_strategy", "training.eval_strategy"},
                                                            {"save_strategy", "save.strategy"}};
  for (const auto& [name, key] : strategies) {
    const auto value = keys.take_text(name);
    if (!value) continue;
    const std::string strategy = lowered(value->substr(value->find('.') + 1));
    if (strategy == "best") {
      settings.set(key, "steps", name);
      settings.change(
          name, "best is not supported; every checkpoint is saved, and save.total_limit keeps the best");
    } else {
      settings.set(key, strategy == "false" ? "no" : strategy, name);
    }
  }
  if (const auto metric = keys.take_text("metric_for_best_model"))
    settings.set_text("training.metric_for_best_model",
                      metric->starts_with("eval_") ? metric->substr(5) : *metric, "metric_for_best_model");
}

void import_machine(ForeignKeys& keys, ImportedSettings& settings) {
  for (const char* name : {"use_cpu", "no_cuda"}) {
    if (keys.take_flag(name)) settings.set("device", "cpu", name);
  }
  if (const auto value = keys.take_text("gradient_checkpointing")) {
    const bool plain = *value == "true" || *value == "True" || *value == "false" || *value == "False";
    settings.set("memory.gradient_checkpointing", plain ? lowered(*value) : "true", "gradient_checkpointing");
    if (!plain)
      settings.change("gradient_checkpointing", *value + " is not a kind here; all blocks are recomputed");
  }
  if (const auto resume = keys.take("resume_from_checkpoint"); resume && is_true(*resume)) {
    const std::string text = resume->IsScalar() ? resume->Scalar() : "";
    settings.set_text("resume", lowered(text) == "true" ? "auto" : text, "resume_from_checkpoint");
  }
  if (keys.take_flag("group_by_length"))
    settings.change(
        "group_by_length",
        "only the samples of one update are sorted by length, always; the order of the data stays random");
}

// What Hugging Face writes where nothing was chosen. Such a key says nothing.
const std::set<std::string>& unset() {
  static const std::set<std::string> values{"log_level=passive",
                                            "log_level_replica=warning",
                                            "log_on_each_node=true",
                                            "logging_strategy=steps",
                                            "hub_strategy=every_save",
                                            "hub_token=<HUB_TOKEN>",
                                            "push_to_hub_token=<PUSH_TO_HUB_TOKEN>",
                                            "ddp_timeout=1800",
                                            "local_rank=0",
                                            "local_rank=-1",
                                            "_n_gpu=1",
                                            "eval_delay=0",
                                            "half_precision_backend=auto",
                                            "length_column_name=length",
                                            "train_sampling_strategy=random",
                                            "fsdp_min_num_params=0",
                                            "optim_target_modules=None",
                                            "remove_unused_columns=true",
                                            "save_safetensors=true",
                                            "skip_memory_metrics=true",
                                            "dataloader_pin_memory=true",
                                            "dataloader_num_workers=0",
                                            "fp16_opt_level=O1",
                                            "data_seed=None",
                                            "past_index=-1",
                                            "torch_empty_cache_steps=None",
                                            "average_tokens_across_devices=true",
                                            "early_stopping_threshold=0.0",
                                            "logging_nan_inf_filter=true",
                                            "report_to=none",
                                            "eval_do_concat_batches=true",
                                            "do_train=true",
                                            "do_eval=true",
                                            "auto_find_batch_size=false",
                                            "save_total_limit=0",
                                            "disable_tqdm=false",
                                            "include_for_metrics=[]",
                                            "eval_use_gather_object=false",
                                            "restore_callback_states_from_checkpoint=false",
                                            "bf16_full_eval=true",
                                            "strict=false",
                                            "is_preprocess=false",
                                            "trackio_space_id=trackio",
                                            "project=huggingface",
                                            "fsdp_config=None"};
  return values;
}

bool says_nothing(const std::string& name, const YAML::Node& value) {
  if (value.IsScalar()) return unset().contains(name + "=" + value.Scalar());
  return name == "accelerator_config" || name == "fsdp_config" || name == "lr_scheduler_kwargs";
}

// An own key, or one that only has another name.
void import_plain(const std::string& name, const YAML::Node& value, ImportedSettings& settings) {
  const ForeignName* foreign = find_foreign_name(lowered(name));
  if (foreign == nullptr) {
    const std::vector<const Key*> own = keys_named(name);
    if (own.size() == 1) {
      const std::string key = own.front()->full_name();
      if (!settings.has(key)) settings.set(key, node_as_yaml(value), name);
    } else {
      settings.leave_out(name, "is not known here");
    }
    return;
  }
  if (std::string_view(foreign->advice).empty() && find_key(foreign->key) != nullptr) {
    if (!settings.has(foreign->key)) settings.set(foreign->key, node_as_yaml(value), name);
    return;
  }
  if (!is_true(value)) return;  // off there, and absent here
  // The table speaks to someone who has written the key here.
  std::string reason = foreign->advice;
  for (const std::string_view words : {"unknown key; ", "not a key: ", "; remove the line"}) {
    if (const size_t at = reason.find(words); at != std::string::npos) reason.erase(at, words.size());
  }
  settings.leave_out(name, reason);
}

}  // namespace

void import_batch(ForeignKeys& keys, ImportedSettings& settings, const std::string& micro, int64_t fallback) {
  const auto size = keys.take_number(micro);
  const auto accumulation = keys.take_number("gradient_accumulation_steps");
  const auto batch = static_cast<int64_t>(size.value_or(static_cast<double>(fallback)));
  const auto times = static_cast<int64_t>(accumulation.value_or(1));
  settings.set("training.batch_size", std::to_string(batch), size ? micro : micro + ", their default");
  settings.set("training.effective_batch_size", std::to_string(batch * times),
               concat(micro, " ", batch, " x gradient_accumulation_steps ", times));
  settings.change(
      micro, concat("an update has ", batch, " x ", times, " = ", batch * times,
                    " samples here (training.effective_batch_size); batch_size only says how many of them "
                    "are in memory at once. If that ran on several GPUs, multiply by their number"));
}

void import_optimizer(const std::string& name, const std::string& from, ImportedSettings& settings) {
  std::string kind = lowered(name.substr(name.rfind('.') + 1));
  std::erase(kind, '_');
  const bool paged = kind.starts_with("paged");
  const bool eight = kind.find("8bit") != std::string::npos;
  if (kind.find("adafactor") != std::string::npos) {
    settings.set("optimizer.name", "adafactor", from);
  } else if (kind.find("adamw") != std::string::npos || kind == "adam" || kind == "adam8bit" ||
             kind == "pagedadam8bit") {
    settings.set("optimizer.name", eight ? "adamw_8bit" : "adamw", from);
    if (kind.find("adamw") == std::string::npos) settings.change(from, name + " is taken as AdamW");
  } else {
    settings.leave_out(from,
                       name + " is not supported; there are adamw (the default), adamw_8bit and adafactor");
  }
  if (paged)
    settings.change(
        from, "nothing is paged by itself; memory.offload: [optimizer] keeps the state in the host's memory");
}

void import_held_out(ForeignKeys& keys, ImportedSettings& settings, const std::string& name) {
  const auto share = keys.take_number(name);
  if (!share || *share <= 0) return;
  if (*share >= 1) {
    settings.leave_out(
        name, "a number of rows is not supported; data.eval: 0.05 holds a share out, or names files");
    return;
  }
  settings.set("data.eval", number_as_yaml(*share), name);
  if (!keys.has("eval_strategy") && !keys.has("evaluation_strategy") &&
      !settings.has("training.eval_strategy"))
    settings.set("training.eval_strategy", keys.has("eval_steps") ? "steps" : "epoch", name);
}

void import_common(ForeignKeys& keys, ImportedSettings& settings) {
  import_dtype(keys, settings);
  import_quantisation(keys, settings);
  for (const char* name : {"optim", "optimizer"}) {
    if (const auto value = keys.take_text(name)) import_optimizer(*value, name, settings);
  }
  import_schedule(keys, settings);
  import_intervals(keys, settings);
  import_machine(keys, settings);
  for (const std::string& name : keys.no_numbers()) settings.leave_out(name, "its value is no number");
  for (const auto& [name, value] : keys.rest()) {
    if (!says_nothing(name, value)) import_plain(name, value, settings);
  }
}

}  // namespace trainer::config
