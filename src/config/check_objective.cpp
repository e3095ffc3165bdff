#include "config/check_objective.h"

#include "trainer/base/strings.h"

namespace trainer::config {
namespace {

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

}  // namespace

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

}  // namespace trainer::config
