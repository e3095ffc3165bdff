#include <algorithm>
#include <filesystem>
#include <regex>

#include "trainer/base/strings.h"

#include "base/day.h"
#include "base/file_facts.h"
#include "config/check_objective.h"
#include "config/effects.h"
#include "config/foreign_keys.h"
#include "config/layer.h"
#include "config/schema.h"
#include "config/value.h"
#include "config/webhook.h"
#include "hub/name.h"

namespace trainer::config {
namespace {

namespace fs = std::filesystem;

// A configuration may also come from a program of the user's own: each value is held against its declaration.
void check_ranges(const Config& config, Checker& check) {
  for (const Section& section : schema()) {
    if (section.optional && !config.lora) continue;
    for (const Key& key : section.keys) {
      Config copy;
      const YAML::Node value = YAML::Load(value_as_yaml(key, config));
      const auto message = assign(key, value, copy);
      check.require(!message, key.full_name(), message.value_or(""));
    }
  }
}

void check_effects(const Config& config, Checker& check) {
  for (const Section& section : schema()) {
    for (const Key& key : section.keys) {
      if (!config.origins.contains(key.full_name())) continue;
      const Condition* unmet = first_idle(key, config, Idle::is_refused);
      if (unmet == nullptr || is_overridden(key, *unmet, config)) continue;
      const ForeignKey* meant = find_foreign_key(key.name);
      const bool other = meant != nullptr && meant->key() != key.full_name();
      check.require(false, key.full_name(),
                    concat("has no effect ", in_words(*unmet),
                           other ? concat("; did you mean ", meant->key(), "?")
                                 : concat("; remove it (as an override: ", key.name, "=null), or change ",
                                          unmet->states.front().key)));
    }
  }
}

void check_batches(const TrainingConfig& training, Checker& check) {
  check.require(!training.gradient_accumulation_steps || !training.effective_batch_size,
                "training.effective_batch_size",
                "training.gradient_accumulation_steps is set as well; keep only one of the two");
  check.require(!training.batch_size.is_automatic() || training.effective_batch_size, "training.batch_size",
                "auto needs training.effective_batch_size: memory can decide how an update is split, but not "
                "how many samples it has");
  constexpr int64_t kMostSamples = 10'000'000;  // of an update; as effective_batch_size
  const int64_t steps = training.gradient_accumulation_steps.value_or(1);
  check.require(
      training.batch_size.is_automatic() || steps <= kMostSamples / std::max<int64_t>(training.batch_size, 1),
      "training.gradient_accumulation_steps",
      concat("an update of more than ", grouped(kMostSamples),
             " samples; make it or training.batch_size smaller"));
  check.require(training.max_steps != 0, "training.max_steps",
                "0 trains nothing; -1 means as many steps as training.num_train_epochs gives");
}

// What needs all weights of a block in one place.
void check_division(const Config& config, Checker& check) {
  if (config.parallel.shard != Shard::all) return;
  const Offload& offload = config.memory.offload;
  check.require(!offload.weights && !offload.automatic, "parallel.shard",
                "all does not go with memory.offload: weights, nor auto, which may choose it: the weights of "
                "blocks are with another GPU or in the host's memory; name what is offloaded (optimizer, "
                "activations), or write parallel.shard: optimizer");
  check.require(
      !config.lora || !config.lora->use_dora, "parallel.shard",
      "all does not go with lora.use_dora, which needs the norms of whole weights; write optimizer, "
      "or remove lora.use_dora");
}

void check_targets(const LoraConfig& lora, Checker& check) {
  const auto* text = std::get_if<std::string>(&lora.target_modules);
  static const std::regex names("[A-Za-z0-9_.]+( *, *[A-Za-z0-9_.]+)+");
  check.require(text == nullptr || !std::regex_match(*text, names), "lora.target_modules",
                concat("a list needs brackets: [", text == nullptr ? "" : *text, "]"));
  check.require(text == nullptr || lora.layers_to_transform.empty(), "lora.layers_to_transform",
                "needs a list in lora.target_modules; in a regular expression, write the layers there");
  check.require(lora.layers_pattern.empty() || !lora.layers_to_transform.empty(), "lora.layers_pattern",
                "has no effect without lora.layers_to_transform");
}

constexpr const char* kNeedsEvaluations =
    "needs evaluations: name held-out rows in data.eval, and remove training.eval_strategy: no";

// Metrics of the loss are in every evaluation, others where answers are generated.
void check_best_model(const Config& config, Checker& check) {
  const TrainingConfig& training = config.training;
  const bool evaluates = training.eval_strategy != IntervalStrategy::no;
  check.require(!training.load_best_model_at_end || evaluates, "training.load_best_model_at_end",
                kNeedsEvaluations);
  check.require(training.early_stopping_patience == 0 || evaluates, "training.early_stopping_patience",
                kNeedsEvaluations);
  static const std::regex of_the_loss("(eval_)?(loss|perplexity|token_accuracy)"),
      of_answers("(eval_)?(loss|reward_(accuracy|margin))"), of_labels("(eval_)?(loss|accuracy|f1)"),
      of_numbers("(eval_)?(loss|mae|pearson|spearman)"),
      of_either(
          "(eval_)?(loss|perplexity|token_accuracy|reward_(accuracy|margin)|accuracy|mae|pearson|spearman)");
  const ObjectiveConfig& objective = config.objective;
  static const std::regex of_vectors("(eval_)?(loss|accuracy)");
  const RowScore score = objective.row_score();
  const std::regex& own = objective.compares()        ? of_answers
                          : score == RowScore::number ? of_numbers
                          : has_classes(score)        ? of_labels
                          : score == RowScore::vector ? of_vectors
                                                      : of_the_loss;
  const bool of_evaluations =
      std::regex_match(training.metric_for_best_model, of_either) || objective.row_score() != RowScore::none;
  if (of_evaluations && !std::regex_match(training.metric_for_best_model, own)) {
    check.require(false, "training.metric_for_best_model",
                  concat(training.metric_for_best_model,
                         " is not in the evaluations of objective.name: ", config.objective.name));
    return;
  }
  check.require(
      config.evaluation.generate || of_evaluations, "training.metric_for_best_model",
      concat(training.metric_for_best_model, " needs generated answers (evaluation.generate: true)"));
}

void check_resume_changed(const std::vector<std::string>& keys, Checker& check) {
  for (const std::string& key : keys)
    check.require(find_key(key) != nullptr, "resume_changed", concat("'", key, "' is not a key"));
}

bool is_directory(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// What to do about a name that stands for no file here.
std::string advice_on_name(hub::Kind kind, const std::string& text) {
  const std::string option = kind == hub::Kind::dataset ? "--dataset " : "";
  if (hub::find_name(kind, text))
    return concat("; if it is a name on the Hugging Face Hub, a run downloads it, and `trainer fetch ",
                  option, text, "` does so now");
  if (hub::parse_name(kind, text))
    return concat("; if it is a name on the Hugging Face Hub, write hf://", text);
  return "";
}

void check_model(const std::string& path, bool names_stay, Checker& check) {
  const std::string key = "model.path";
  if (names_stay && hub::find_name(hub::Kind::model, path)) return;
  if (path.empty()) {
    check.require(false, key, "is required: the directory of a model in Hugging Face format");
  } else if (!is_there(path) && find_installed("configs/models/" + path + ".json")) {
    check.require(false, key,
                  concat("'", path,
                         "' is only the shape of a model, which is enough for `trainer plan`; give the "
                         "directory with its weights and tokenizer"),
                  ExitCode::files);
  } else if (!is_directory(path)) {
    check.require(false, key,
                  concat("'", path, "' ",
                         is_there(path) ? "is not a directory"
                                        : "does not exist" + advice_on_name(hub::Kind::model, path)),
                  ExitCode::files);
  } else {
    const bool adapter = is_there(fs::path(path) / "adapter_config.json");
    check.require(
        is_there(fs::path(path) / "config.json"), key,
        concat(
            "'", path, "' holds no config.json",
            adapter ? "; it is an adapter: give its base model here, and the adapter as lora.adapter" : ""),
        ExitCode::files);
  }
}

// What is in a folder and what a pattern matches is seen when it is opened.
void check_sources(const std::vector<DataSource>& sources, const std::string& key, bool names_stay,
                   Checker& check) {
  for (const DataSource& source : sources) {
    if (names_stay && hub::find_name(hub::Kind::dataset, source.path)) continue;
    const bool pattern = source.path.find_first_of("*?[") != std::string::npos;
    check.require(
        pattern || is_there(source.path), key,
        concat("'", source.path, "' does not exist", advice_on_name(hub::Kind::dataset, source.path)),
        ExitCode::data);
  }
}

void check_adapter(const std::string& path, bool names_stay, Checker& check) {
  if (path.empty() || (names_stay && hub::find_name(hub::Kind::model, path))) return;
  const bool holds = is_there(fs::path(path) / "adapter_config.json");
  check.require(holds, "lora.adapter",
                concat("'", path, "' ",
                       !is_there(path) ? "does not exist" + advice_on_name(hub::Kind::model, path)
                                       : "holds no adapter_config.json"),
                ExitCode::files);
}

void check_webhook(const NotifyConfig& notify, Checker& check) {
  try {
    static_cast<void>(webhook_address(notify));
  } catch (const ConfigError& error) {
    const std::string_view message = error.what();
    check.require(false, "notify.webhook", std::string(message.substr(message.find(": ") + 2)));
  }
}

}  // namespace

Problems contradictions(const Config& config) {
  Checker check(config);
  check_ranges(config, check);
  check_effects(config, check);
  check_batches(config.training, check);
  check.require(!config.optimizer.warmup_init || config.optimizer.relative_step, "optimizer.warmup_init",
                "needs optimizer.relative_step: true");
  check.require(config.optimizer.warmup_steps == 0 || config.optimizer.warmup_ratio == 0,
                "optimizer.warmup_ratio", "optimizer.warmup_steps is set as well; keep only one of the two");
  check.require(!config.optimizer.master_weights || config.model.dtype != ModelDtype::fp32,
                "optimizer.master_weights",
                "is for bf16 weights, but model.dtype is fp32; remove one of the two");
  check.require(config.data.kind != DataKind::span_corruption || config.data.target.empty(), "data.target",
                "has no effect with data.kind: span_corruption, which takes the targets out of the text");
  check.require(config.data.kind != DataKind::text || config.data.target.empty(), "data.target",
                "has no effect with data.kind: text, which learns all of the text; for an input and a target "
                "use completion");
  const std::string& day = config.data.template_date;
  check.require(day.empty() || day_in(day), "data.template_date", concat("there is no day '", day, "'"));
  const int64_t divisions = config.memory.roundup_power2_divisions;
  check.require(divisions <= 16 && (divisions & (divisions - 1)) == 0, "memory.roundup_power2_divisions",
                concat("must be 0, 1, 2, 4, 8 or 16, found ", divisions));
  check.require(config.data.long_samples != LongSamples::split || config.data.max_length > 1,
                "data.long_samples", "split needs a data.max_length above 1");
  if (config.lora) check_targets(*config.lora, check);
  check_objective(config, check);
  check_division(config, check);
  check_best_model(config, check);
  check_resume_changed(config.resume_changed, check);
  return std::move(check.problems);
}

Problems missing_for_training(const Config& config, bool names_stay) {
  Checker check(config);
  check_model(config.model.path, names_stay, check);
  check.require(!config.data.train.empty(), "data.train", "is required: files of rows, or folders of them");
  check_sources(config.data.train, "data.train", names_stay, check);
  check.require(config.training.eval_strategy == IntervalStrategy::no || !config.data.eval.empty(),
                "training.eval_strategy",
                "needs data.eval: files to evaluate on, or a share of data.train such as 0.02");
  check.require(!config.evaluation.generate || config.training.eval_strategy != IntervalStrategy::no,
                "evaluation.generate", kNeedsEvaluations);
  check_sources(config.data.eval.sources, "data.eval", names_stay, check);
  if (config.lora) check_adapter(config.lora->adapter, names_stay, check);
  check.require(
      config.model.init == ModelInit::pretrained || !config.lora, "model.init",
      "random weights have to be trained themselves, and lora trains an adapter beside them; remove one "
      "of the two");
  check.require(
      config.lora || !config.model.quantises(), "model.quantize",
      "quantised weights cannot be trained; add a lora section (lora: {}), or leave it out to train all "
      "weights");
  check_webhook(config.notify, check);
  const bool goes_on_from_path = config.resume != "auto" && config.resume != "never";
  check.require(!goes_on_from_path || is_directory(config.resume), "resume",
                concat("'", config.resume,
                       "' is not a directory; expected auto, never or the directory of a checkpoint"),
                ExitCode::files);
  check.require(!is_there(config.output_dir) || is_directory(config.output_dir), "output_dir",
                concat("'", config.output_dir, "' is a file, not a directory"), ExitCode::files);
  return std::move(check.problems);
}

}  // namespace trainer::config
