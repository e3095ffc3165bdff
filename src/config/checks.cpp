#include <algorithm>
#include <filesystem>
#include <regex>

#include "trainer/base/strings.h"

#include "base/day.h"
#include "base/file_facts.h"
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

class Checker {
 public:
  explicit Checker(const Config& config) : config_(config) {}

  void require(bool holds, const std::string& key, const std::string& message,
               ExitCode code = ExitCode::usage) {
    if (!holds) problems.push_back({{origin(key)}, key, message, code, family_of(key, code)});
  }

  Problems problems;

 private:
  static ErrorCode family_of(const std::string& key, ExitCode code) {
    if (code == ExitCode::data) return ErrorCode::data_file;
    if (code != ExitCode::files) return ErrorCode::config_conflict;
    return key == "model.path"     ? ErrorCode::model_files
           : key == "lora.adapter" ? ErrorCode::adapter
           : key == "output_dir"   ? ErrorCode::output_dir
                                   : ErrorCode::files;
  }

  std::string origin(const std::string& key) const {
    const auto found = config_.origins.find(key);
    return found == config_.origins.end() ? "" : found->second;
  }

  const Config& config_;
};

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

// What has no meaning for a head that scores whole texts.
void check_scores(const Config& config, Checker& check) {
  const ObjectiveConfig& objective = config.objective;
  const RowScore score = objective.row_score();
  const DataKind kind = config.data.kind, own = objective.embeds()       ? DataKind::pairs
                                                : objective.classifies() ? DataKind::classification
                                                                         : DataKind::automatic;
  const bool for_scores = kind == DataKind::classification || kind == DataKind::pairs;
  check.require(kind == own || !for_scores, "data.kind",
                concat(kind == DataKind::pairs ? "pairs needs objective.name: embedding"
                                               : "classification needs objective.name: classification or "
                                                 "regression (or token_classification)",
                       ", and that is ", objective.name));
  check.require(!config.model.encoder_only || own != DataKind::automatic, "model.encoder_only",
                concat("an encoder alone is for objective.name: classification, regression, "
                       "token_classification or embedding, and that is ",
                       objective.name));
  if (score == RowScore::none) return;
  const auto is_for_tokens = [&](bool given, const char* key) {
    check.require(!given, key, concat("has no effect with objective.name: ", objective.name));
  };
  is_for_tokens(config.evaluation.generate, "evaluation.generate");
  is_for_tokens(config.training.z_loss != 0, "training.z_loss");
  is_for_tokens(config.training.focal_gamma != 0, "training.focal_gamma");
  is_for_tokens(!config.model.add_tokens.empty() && config.lora, "model.add_tokens");
  is_for_tokens(config.model.init != ModelInit::pretrained, "model.init");
  is_for_tokens(config.data.loss_on != DataConfig{}.loss_on, "data.loss_on");
  is_for_tokens(config.data.long_samples == LongSamples::split, "data.long_samples");
  is_for_tokens(objective.embeds() && !config.data.loss_weight.empty(), "data.loss_weight");
  is_for_tokens((objective.embeds() || score == RowScore::number) && config.training.label_smoothing != 0,
                "training.label_smoothing");
  check.require(!objective.embeds() || config.effective_batch_size() > 1, "training.effective_batch_size",
                "1 leaves embedding no other text to tell apart");
  check.require(own == DataKind::automatic || for_scores || kind == DataKind::automatic, "data.kind",
                concat("objective.name: ", objective.name, " needs rows of kind ",
                       objective.embeds() ? "pairs" : "classification"));
  check.require(objective.labels.size() != 1, "objective.labels", "one class leaves nothing to tell apart");
  for (const auto& [name, weight] : objective.class_weights)
    check.require(weight >= 0 && weight <= 1e6, "objective.class_weights",
                  concat("the weight of '", name, "' must be from 0 to 1,000,000"));
}

void check_distillation(const Config& config, Checker& check) {
  const ObjectiveConfig& objective = config.objective;
  check.require(config.data.kind != DataKind::span_corruption, "data.kind",
                "span_corruption makes other targets in each epoch, of which a teacher says nothing");
  check.require(!objective.teacher.empty() || !objective.logits.empty(), "objective.name",
                "distill needs what a teacher says: objective.teacher (a model's directory) or "
                "objective.logits (a file that trainer eval --save-logits has written)");
  check.require(objective.teacher.empty() || objective.logits.empty(), "objective.logits",
                "is what a teacher has said, so objective.teacher has nothing to do; set one of them");
}

// The rows that an objective needs, and what has no meaning for it.
void check_objective(const Config& config, Checker& check) {
  check_scores(config, check);
  const ObjectiveConfig& objective = config.objective;
  const DataKind kind = config.data.kind, needed = !objective.compares() ? DataKind::automatic
                                                   : objective.judges()  ? DataKind::feedback
                                                                         : DataKind::preference;
  const bool of_answers = kind == DataKind::preference || kind == DataKind::feedback;
  const char* others = kind == DataKind::feedback ? "kto" : "dpo, ipo, orpo, simpo, cpo or reward";
  check.require(!of_answers || kind == needed, "data.kind",
                concat("needs objective.name: ", others, ", and that is ", objective.name));
  if (objective.distills()) check_distillation(config, check);
  if (!objective.compares()) return;
  check.require(kind == DataKind::automatic || of_answers, "data.kind",
                concat("objective.name: ", objective.name, " needs rows of kind ",
                       objective.judges() ? "feedback" : "preference"));
  const std::string& type = objective.loss_type;
  check.require(objective.name != "cpo" || type == "sigmoid" || type == "hinge", "objective.loss_type",
                concat(type, " is for dpo; for cpo it is sigmoid or hinge"));
  const bool smooths = type == "sigmoid" || type == "robust";
  check.require(smooths || objective.label_smoothing == 0, "objective.label_smoothing",
                concat("has no effect with objective.loss_type: ", type));
  const bool per_token = objective.length_normalised.of(false);
  check.require(!per_token || (type != "apo_zero" && type != "apo_down"), "objective.length_normalised",
                concat("does not go with objective.loss_type: ", type, ", which is of whole answers"));
  const bool off = config.reference() == Reference::adapter_off;
  const bool whole = config.lora && config.lora->modules_to_save.empty() && config.model.add_tokens.empty();
  check.require(!off || whole, "objective.reference",
                "adapter_off needs an adapter that is all that is trained: a lora section without "
                "modules_to_save, and no model.add_tokens");
  check.require(objective.name != "kto" || objective.reference != Reference::none, "objective.reference",
                "kto compares with a reference; choose auto, adapter_off or kept");
  check.require(config.training.label_smoothing == 0, "training.label_smoothing",
                concat("is for sft; for preferences see objective.label_smoothing"));
  check.require(config.training.z_loss == 0, "training.z_loss", "is for objective.name: sft");
  check.require(config.training.focal_gamma == 0, "training.focal_gamma", "is for objective.name: sft");
  check.require(config.data.loss_weight.empty(), "data.loss_weight",
                concat("is for objective.name: sft; ", objective.name, " takes all rows as they are"));
  const bool weighs = std::ranges::any_of(config.data.train,
                                          [](const DataSource& source) { return source.loss_weight != 1; });
  check.require(
      !weighs, "data.train",
      concat("loss_weight is for objective.name: sft; ", objective.name, " takes all rows as they are"));
  check.require(config.data.input.empty() && config.data.target.empty(),
                config.data.input.empty() ? "data.target" : "data.input",
                concat("is not used with objective.name: ", objective.name,
                       ", which finds the fields of its rows; leave it out"));
  check.require(config.data.loss_on != LossOn::everything || objective.nll_weight() > 0, "data.loss_on",
                "everything does not go with preferences, which are about answers, but for the loss of the "
                "chosen answer beside them (objective.name: orpo, or objective.rpo_alpha)");
  check.require(config.data.long_samples != LongSamples::split, "data.long_samples",
                "split is for running text (data.kind: text); choose truncate or drop");
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
  const std::regex& own = objective.compares()                                  ? of_answers
                          : score == RowScore::number                           ? of_numbers
                          : score == RowScore::label || score == RowScore::tags ? of_labels
                          : score == RowScore::vector                           ? of_vectors
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
