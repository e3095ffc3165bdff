// How the values of other trainers' keys become ours.
#include <cmath>
#include <set>

#include "trainer/base/strings.h"

#include "base/text.h"
#include "config/foreign_keys.h"
#include "config/import_settings.h"
#include "config/schema.h"
#include "config/value.h"
#include "config/weight_formats.h"

namespace trainer::config {
namespace {

constexpr const char* kUnknown = "is not known here";

// "IntervalStrategy.STEPS" -> "steps"
std::string without_type(const std::string& text) { return lower_case(text.substr(text.rfind('.') + 1)); }

// What Hugging Face writes where nothing was chosen. Such a key says nothing.
constexpr std::string_view kUnset =
    " "
    "log_level=passive log_level_replica=warning log_on_each_node=true logging_strategy=steps "
    "hub_strategy=every_save hub_token=<HUB_TOKEN> push_to_hub_token=<PUSH_TO_HUB_TOKEN> "
    "ddp_timeout=1800 local_rank=0 local_rank=-1 _n_gpu=1 eval_delay=0 half_precision_backend=auto "
    "length_column_name=length train_sampling_strategy=random fsdp_min_num_params=0 "
    "optim_target_modules=None remove_unused_columns=true save_safetensors=true "
    "skip_memory_metrics=true dataloader_pin_memory=true dataloader_num_workers=0 fp16_opt_level=O1 "
    "data_seed=None past_index=-1 torch_empty_cache_steps=None average_tokens_across_devices=true "
    "early_stopping_threshold=0.0 logging_nan_inf_filter=true report_to=none "
    "eval_do_concat_batches=true do_train=true do_eval=true auto_find_batch_size=false "
    "save_total_limit=0 disable_tqdm=false include_for_metrics=[] eval_use_gather_object=false "
    "restore_callback_states_from_checkpoint=false bf16_full_eval=true strict=false "
    "is_preprocess=false trackio_space_id=trackio project=huggingface fsdp_config=None "
    "accelerator_config.split_batches=false accelerator_config.even_batches=true "
    "accelerator_config.use_seedable_sampler=true accelerator_config.non_blocking=false "
    "fsdp_config.min_num_params=0 fsdp_config.xla=false fsdp_config.xla_fsdp_v2=false "
    "fsdp_config.xla_fsdp_grad_ckpt=false lr_scheduler_kwargs.num_cycles=0.5 "
    "lr_scheduler_kwargs.power=1.0 lr_scheduler_kwargs.lr_end=1e-07 lr_scheduler_kwargs.lr_end=1e-7 ";

// Of two keys that mean the same, the first counts.
void set_unless_given(const std::string& ours, const YAML::Node& value, const std::string& from,
                      ImportedSettings& settings) {
  const std::string before = settings.value_of(ours), yaml = node_as_yaml(value);
  if (before.empty()) {
    settings.set(ours, yaml, from);
  } else if (before != yaml) {
    settings.leave_out(has_names_inside(value) ? with_names_inside(from, value) : concat(from, ": ", yaml),
                       concat(ours, " has the value of another key, ", before));
  }
}

// A switch goes before another key of the same meaning: lora_target_linear takes in lora_target_modules.
void switch_on(const ForeignKey& row, const std::string& from, ImportedSettings& settings) {
  const std::string before = settings.value_of(row.key());
  if (!before.empty() && before != row.value())
    settings.leave_out(concat(row.key(), ": ", before), concat("is ", row.value(), " because of ", from));
  settings.set(row.key(), row.value(), from);
}

void import_row(const ForeignKey& row, const YAML::Node& value, const std::string& from,
                ImportedSettings& settings) {
  const bool has_names = has_names_inside(value);
  if (has_names && (row.is_value() || *row.note != '\0')) {
    if (const std::string names = with_names_inside(from, value); !names.empty())
      settings.leave_out(names, row.is_value() ? "is true or false" : reason_of(row));
  } else if (row.is_value()) {
    if (is_true(value)) switch_on(row, from, settings);
  } else if (*row.note == '\0') {
    set_unless_given(row.ours, value, from, settings);
  } else if (is_true(value)) {  // what is off there is absent here
    settings.leave_out(from, reason_of(row));
  }
}

// Our key of a name; "" if there is none, or it is not clear which.
std::string own_key(const std::string& name) {
  const Key* own = key_by_short_name(name);
  return own != nullptr ? own->full_name() : "";
}

}  // namespace

bool says_nothing(const std::string& name, const YAML::Node& value) {
  return value.IsScalar() && kUnset.find(concat(" ", name, "=", value.Scalar(), " ")) != std::string::npos;
}

namespace to {

void unsaid(GivenKeys& keys, Name name, Name, ImportedSettings&) { keys.drop({name}); }

void flag(GivenKeys& keys, Name name, Name ours, ImportedSettings& settings) {
  settings.set(ours, keys.take_flag(name) ? "true" : "false", name);
}

void list(GivenKeys& keys, Name name, Name ours, ImportedSettings& settings) {
  if (const auto value = keys.take(name)) settings.set_list(ours, texts_of(*value), name);
}

void count(GivenKeys& keys, Name name, Name ours, ImportedSettings& settings) {
  const auto steps = keys.take_number(name);
  if (!steps || *steps <= 0) return;
  if (*steps < 1) {
    settings.leave_out(name, "a share of all updates is not supported; give a number of updates");
  } else {
    settings.set(ours, std::to_string(std::llround(*steps)), name);
  }
}

void packed(GivenKeys& keys, Name name, Name ours, ImportedSettings& settings) {
  if (!keys.take_flag(name)) return;
  settings.set(ours, "true", name);
  settings.change(
      name,
      "samples never see each other, and effective_batch_size counts samples, not packed rows; for as "
      "many tokens in an update, make it larger");
}

void half(GivenKeys& keys, Name name, Name, ImportedSettings& settings) {
  if (!keys.take_flag(name) || settings.has("model.dtype")) return;
  settings.set("model.dtype", "bf16", name);
  settings.change(name, "fp16 is not supported; bf16 takes the same memory and needs no loss scaling");
}

void dtype(GivenKeys& keys, Name name, Name ours, ImportedSettings& settings) {
  const std::string value = keys.take_text(name).value_or("auto");
  const std::string type = without_type(value);
  if (type == "auto" || settings.has(ours)) return;
  if (type.starts_with("bf") || type == "fp16" || type == "float16") {
    settings.set(ours, "bf16", name);
    if (!type.starts_with("bf")) settings.change(name, "fp16 is not supported; bf16 is taken");
  } else if (type == "fp32" || type == "float32" || type == "no") {
    settings.set(ours, "fp32", name);
  } else {
    settings.leave_out(name, value + " is not supported; model.dtype is bf16, fp32 or auto");
  }
}

void four_bits(GivenKeys& keys, Name name, Name ours, ImportedSettings& settings) {
  const auto value = keys.take_text(name);
  if (!value || !is_true(YAML::Node(*value))) return;
  const std::string& format = smallest_weight_format().name;
  if (name == "load_in_4bit" || *value == "4") {
    settings.set(ours, format, name);
  } else {
    settings.leave_out(name, concat("only 4 bits are supported: ", ours, ": ", format));
  }
}

void quantized_as(GivenKeys& keys, Name name, Name, ImportedSettings& settings) {
  const auto type = keys.take_text(name);
  const std::string& format = smallest_weight_format().name;
  if (type && *type != format)
    settings.change(name, concat(*type, " is not supported; ", format, " is taken"));
}

void double_quantized(GivenKeys& keys, Name name, Name ours, ImportedSettings& settings) {
  if (settings.has("model.quantize")) return flag(keys, name, ours, settings);
  keys.drop({name});
}

void optimizer(GivenKeys& keys, Name name, Name, ImportedSettings& settings) {
  if (const auto value = keys.take_text(name)) import_optimizer(*value, name, settings);
}

void schedule(GivenKeys& keys, Name name, Name ours, ImportedSettings& settings) {
  const std::string value = keys.take_text(name).value_or("");
  const std::string type = without_type(value);
  static const std::set<std::string> kKnown{"linear",     "cosine",      "constant", "constant_with_warmup",
                                            "polynomial", "inverse_sqrt"};
  if (type.empty()) return;
  if (kKnown.contains(type)) {
    settings.set(ours, type, name);
  } else if (type.starts_with("cosine")) {
    settings.set(ours, "cosine", name);
    settings.change(name, value + " is not supported; cosine goes down to 0 once");
  } else {
    settings.leave_out(name, concat(value, " is not supported; ", ours, " may be ",
                                    join(std::vector<std::string>(kKnown.begin(), kKnown.end()))));
  }
}

// None is written as such: without a key, there is a warm-up.
void warmup(GivenKeys& keys, Name name, Name ours, ImportedSettings& settings) {
  const std::optional<double> steps = keys.take_number(name);
  if (!steps) return;
  if (*steps < 1) {
    settings.set("optimizer.warmup_ratio", number_as_yaml(std::max(0.0, *steps)), name);
  } else {
    settings.set(ours, std::to_string(std::llround(*steps)), name);
  }
}

void warmup_share(GivenKeys& keys, Name name, Name ours, ImportedSettings& settings) {
  const std::optional<double> share = keys.take_number(name);
  if (share && !settings.has("optimizer.warmup_steps"))
    settings.set(ours, number_as_yaml(std::max(0.0, *share)), name);
}

void strategy(GivenKeys& keys, Name name, Name ours, ImportedSettings& settings) {
  const auto value = keys.take_text(name);
  if (!value) return;
  const std::string strategy = without_type(*value);
  settings.set(ours, strategy == "best" ? "steps" : strategy == "false" ? "no" : strategy, name);
  if (strategy == "best")
    settings.change(name,
                    "best is not supported; every checkpoint is saved, and save.total_limit keeps the best");
}

// N times an epoch: the number of updates in an epoch is not known here.
void per_epoch(GivenKeys& keys, Name name, Name ours, ImportedSettings& settings) {
  const double times = keys.take_number(name).value_or(0);
  if (times <= 0) return;
  settings.set(ours, "epoch", name);
  if (times != 1)
    settings.change(
        name, concat("once an epoch, not ", times, " times; for more give steps and a number of updates"));
}

void metric(GivenKeys& keys, Name name, Name ours, ImportedSettings& settings) {
  if (const auto metric = keys.take_text(name))
    settings.set_text(ours, metric->starts_with("eval_") ? metric->substr(5) : *metric, name);
}

// A share of the training data, or a number of rows.
void held_out(GivenKeys& keys, Name name, Name ours, ImportedSettings& settings) {
  const double share = keys.take_number(name).value_or(0);
  if (share <= 0) return;
  if (share >= 1)
    return settings.leave_out(
        name, "a number of rows is not supported; data.eval: 0.05 holds a share out, or names files");
  settings.set(ours, number_as_yaml(share), name);
}

void recompute(GivenKeys& keys, Name name, Name ours, ImportedSettings& settings) {
  const auto value = keys.take_text(name);
  if (!value) return;
  const std::string kind = lower_case(*value);
  const bool plain = kind == "true" || kind == "false";
  settings.set(ours, plain ? kind : "true", name);
  if (!plain) settings.change(name, *value + " is not a kind here; all blocks are recomputed");
}

void resume(GivenKeys& keys, Name name, Name ours, ImportedSettings& settings) {
  const auto from = keys.take_text(name);
  if (from && is_true(YAML::Node(*from)))
    settings.set_text(ours, lower_case(*from) == "true" ? "auto" : *from, name);
}

void grouped_by_length(GivenKeys& keys, Name name, Name, ImportedSettings& settings) {
  if (keys.take_flag(name))
    settings.change(
        name,
        "only the samples of one update are sorted by length, always; the order of the data stays random");
}

}  // namespace to

void import_batch(GivenKeys& keys, ImportedSettings& settings, const std::string& micro, int64_t fallback,
                  const std::string& update) {
  const auto size = keys.take_number(micro);
  const auto accumulation = keys.take_number("gradient_accumulation_steps");
  constexpr double kMost = 1e9;  // more is refused in any case, and the product must not overflow
  const auto batch = static_cast<int64_t>(std::min(size.value_or(static_cast<double>(fallback)), kMost));
  auto times = static_cast<int64_t>(std::min(accumulation.value_or(1), kMost));
  if (!update.empty() && !accumulation && batch > 0) {
    const auto samples = keys.take_number(update);
    if (samples && *samples > 0)
      times = std::max<int64_t>(1, std::llround(std::min(*samples, kMost)) / batch);
  }
  settings.set("training.batch_size", std::to_string(batch), size ? micro : micro + ", their default");
  settings.set("training.effective_batch_size", std::to_string(batch * times),
               concat(micro, " ", batch, " x gradient_accumulation_steps ", times));
  settings.change(
      micro, concat("an update has ", batch, " x ", times, " = ", batch * times,
                    " samples here (training.effective_batch_size); batch_size only says how many of them "
                    "are in memory at once. If that ran on several GPUs, multiply by their number"));
}

void import_optimizer(const std::string& name, const std::string& from, ImportedSettings& settings) {
  std::string kind = lower_case(name.substr(name.rfind('.') + 1));
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

void import_part(GivenKeys& part, ImportedSettings& settings) {
  for (const auto& [name, value] : part.rest()) {
    const std::string full = part.full_name(name);
    const ForeignKey* row = find_foreign_key(full);
    if (row != nullptr && row->convert == nullptr) {
      import_row(*row, value, full, settings);
    } else if (has_names_inside(value)) {
      settings.leave_out(with_names_inside(full, value), kUnknown);
    } else {
      settings.leave_out(full, row != nullptr ? reason_of(*row) : kUnknown);
    }
    part.drop({name});
  }
}

void drop_lora(GivenKeys& keys, const std::string& reason, ImportedSettings& settings) {
  for (const auto& [name, value] : keys.rest()) {
    const ForeignKey* row = find_foreign_key(name);
    if (!(row != nullptr ? row->key() : own_key(name)).starts_with("lora.")) continue;
    if (has_names_inside(value)) {
      settings.leave_out(with_names_inside(name, value), reason.empty() ? kUnknown : reason);
    } else if (!reason.empty()) {
      settings.leave_out(name, reason);
    }
    keys.take(name);
  }
}

void import_by_table(GivenKeys& keys, ImportedSettings& settings) {
  for (const ForeignKey& row : foreign_keys()) {
    if (row.convert == nullptr) continue;
    for (const std::string& name : row.names()) {
      const auto value = keys.peek(name);
      if (value && !says_nothing(name, *value) && !has_names_inside(*value))
        row.convert(keys, name, row.ours, settings);
    }
  }
  for (const std::string& name : keys.no_numbers()) settings.leave_out(name, "its value is no number");
  for (const auto& [name, value] : keys.rest()) {
    if (says_nothing(name, value)) continue;
    const std::string own = own_key(name);
    if (const ForeignKey* row = find_foreign_key(lower_case(name))) {
      import_row(*row, value, name, settings);
    } else if (own.empty()) {
      const std::string names = has_names_inside(value) ? with_names_inside(name, value) : name;
      if (!names.empty()) settings.leave_out(names, kUnknown);
    } else {
      set_unless_given(own, value, name, settings);
    }
  }
}

}  // namespace trainer::config
