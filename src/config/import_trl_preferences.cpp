// Preferences in the arguments of TRL's trainers: DPOConfig and KTOConfig, and CPOConfig and ORPOConfig of
// trl.experimental. The trainer is not named there; it follows from its keys.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/base/strings.h"

#include "config/import_settings.h"
#include "config/value.h"

namespace trainer::config {
namespace {

enum class TrlTrainer { none, dpo, kto, cpo, orpo };

constexpr std::array<std::string_view, 7> kLossesOfDpo{"sigmoid",  "hinge",    "ipo",         "robust",
                                                       "apo_zero", "apo_down", "sigmoid_norm"};

std::vector<std::string> losses_of(const GivenKeys& keys) {
  const auto given = keys.peek("loss_type");
  return given ? texts_of(*given) : std::vector<std::string>{};
}

TrlTrainer trainer_of(const GivenKeys& keys) {
  const std::vector<std::string> losses = losses_of(keys);
  const auto has_loss = [&](std::string_view name) {
    return std::ranges::find(losses, name) != losses.end();
  };
  const auto any = [&](std::initializer_list<const char*> names) {
    return std::ranges::any_of(names, [&](const char* name) { return keys.was_given(name); });
  };
  if (any({"desirable_weight", "undesirable_weight"}) || has_loss("kto")) return TrlTrainer::kto;
  if (any({"cpo_alpha", "simpo_gamma"}) || has_loss("simpo")) return TrlTrainer::cpo;
  constexpr std::array<std::string_view, 7> kOthersOfDpo{"exo_pair", "nca_pair",     "bco_pair", "sppo_hard",
                                                         "aot",      "aot_unpaired", "discopop"};
  const bool of_dpo =
      std::ranges::any_of(kLossesOfDpo, has_loss) || std::ranges::any_of(kOthersOfDpo, has_loss);
  if (of_dpo || any({"precompute_ref_log_probs", "reference_free", "rpo_alpha", "ld_alpha", "use_weighting",
                     "f_divergence_type", "sync_ref_model"}))
    return TrlTrainer::dpo;
  if (!any({"beta"})) return TrlTrainer::none;
  const bool of_orpo = any({"max_completion_length", "is_encoder_decoder", "generate_during_eval"});
  return of_orpo ? TrlTrainer::orpo : TrlTrainer::dpo;
}

void set_number(GivenKeys& keys, const std::string& theirs, const std::string& ours, const char* fallback,
                ImportedSettings& settings) {
  if (const auto value = keys.take_number(theirs)) {
    settings.set(ours, number_as_yaml(*value), theirs);
  } else if (fallback != nullptr) {
    settings.their_default(ours, fallback);
  }
}

// TRL's loss of the chosen answers is the mean over the tokens of a batch.
void set_nll(const std::string& alpha, const std::string& from, ImportedSettings& settings) {
  settings.set("objective.rpo_alpha", alpha, from);
  settings.set("objective.nll_over", "tokens", from);
}

// One of the losses and, beside it, "sft": the loss of the chosen answers.
void import_losses_of_dpo(GivenKeys& keys, ImportedSettings& settings) {
  std::vector<std::string> losses = losses_of(keys);
  const auto given_weights = keys.take("loss_weights");
  std::vector<std::string> weights = given_weights ? texts_of(*given_weights) : std::vector<std::string>{};
  keys.drop({"loss_type"});
  if (losses.empty()) losses = {"sigmoid"};
  weights.resize(losses.size(), "1.0");
  const auto sft = std::ranges::find(losses, "sft");
  if (sft != losses.end() && losses.size() == 2) {
    const auto at = static_cast<size_t>(sft - losses.begin());
    set_nll(weights[at], "loss_type: sft", settings);
    losses.erase(sft);
    weights.erase(weights.begin() + static_cast<std::ptrdiff_t>(at));
  }
  const std::string& loss = losses.front();
  const bool known = std::ranges::find(kLossesOfDpo, loss) != kLossesOfDpo.end();
  settings.set("objective.name", loss == "ipo" ? "ipo" : "dpo", "loss_type: " + loss);
  if (losses.size() > 1 || !known) {
    settings.leave_out("loss_type: " + join(losses),
                       "objective.loss_type is one of sigmoid, hinge, robust, apo_zero and apo_down, beside "
                       "which objective.rpo_alpha adds the loss of the chosen answers");
  } else if (loss == "sigmoid_norm") {
    settings.set("objective.length_normalised", "true", "loss_type: sigmoid_norm");
  } else if (loss != "ipo" && loss != "sigmoid") {
    settings.set("objective.loss_type", loss, "loss_type");
  }
  if (weights.front() != "1.0" && weights.front() != "1")
    settings.leave_out("loss_weights",
                       "the weight of the comparison is 1; objective.rpo_alpha is that of "
                       "the chosen answers' loss");
}

void import_cpo(GivenKeys& keys, ImportedSettings& settings) {
  const std::string loss = keys.take_text("loss_type").value_or("sigmoid");
  const bool simpo = loss == "simpo";
  settings.set("objective.name", simpo ? "simpo" : "cpo", "loss_type: " + loss);
  settings.set("data.kind", "preference", "loss_type: " + loss);
  if (loss == "hinge") settings.set("objective.loss_type", "hinge", "loss_type");
  if (loss == "ipo")
    settings.leave_out("loss_type: ipo",
                       "without a reference it is not supported; objective.name: ipo has one");
  set_number(keys, "beta", "objective.beta", "0.1", settings);
  const auto gamma = keys.take_number("simpo_gamma");
  if (simpo) settings.set("objective.gamma", number_as_yaml(gamma.value_or(0.5)), "simpo_gamma");
  set_nll(number_as_yaml(keys.take_number("cpo_alpha").value_or(1)), "cpo_alpha", settings);
  if (const auto alpha = keys.take_number("alpha"); alpha && *alpha != 0)
    settings.leave_out("alpha", "AlphaPO's rewards are not supported");
}

// Keys that say how TRL gets to the same numbers, or that are as they are by themselves.
void drop_ways(GivenKeys& keys, ImportedSettings& settings) {
  keys.drop({"precompute_ref_batch_size", "dataset_num_proc", "padding_value", "label_pad_token_id",
             "pad_to_multiple_of", "is_encoder_decoder", "f_alpha_divergence_coef", "discopop_tau",
             "ref_model_mixup_alpha", "ref_model_sync_steps", "router_aux_loss_coef", "pad_token",
             "padding_free", "trust_remote_code", "activation_offloading"});
  for (const char* name : {"max_completion_length", "max_prompt_length"})
    if (keys.take(name)) settings.leave_out(name, "only data.max_length cuts, prompt and answer together");
  for (const char* name : {"generate_during_eval", "use_weighting", "sync_ref_model"})
    if (keys.take_flag(name)) settings.leave_out(name, "is not supported");
  if (const auto divergence = keys.take_text("f_divergence_type");
      divergence && *divergence != "reverse_kl" && !divergence->ends_with("REVERSE_KL"))
    settings.leave_out("f_divergence_type", "the divergence is the reverse KL");
  if (keys.take_number("ld_alpha")) settings.leave_out("ld_alpha", "is not supported");
  const std::string side = keys.take_text("truncation_mode").value_or("keep_start");
  if (side == "keep_end") settings.set("data.truncation_side", "left", "truncation_mode");
}

}  // namespace

bool import_preferences_of_trl(GivenKeys& keys, ImportedSettings& settings) {
  const TrlTrainer trainer = trainer_of(keys);
  if (trainer == TrlTrainer::none) return false;
  if (trainer == TrlTrainer::cpo) {
    import_cpo(keys, settings);
  } else if (trainer == TrlTrainer::orpo) {
    settings.set("objective.name", "orpo", "keys of ORPOConfig");
    settings.set("data.kind", "preference", "keys of ORPOConfig");
    settings.set("objective.nll_over", "tokens", "ORPOTrainer");
    settings.set("data.loss_on", "everything", "ORPOTrainer learns the prompts, too");
  } else if (trainer == TrlTrainer::kto) {
    const std::string loss = keys.take_text("loss_type").value_or("kto");
    settings.set("objective.name", "kto", "keys of KTOConfig");
    settings.set("data.kind", "feedback", "keys of KTOConfig");
    if (loss != "kto") settings.leave_out("loss_type: " + loss, "objective.name: kto has one loss");
    set_number(keys, "desirable_weight", "objective.desirable_weight", nullptr, settings);
    set_number(keys, "undesirable_weight", "objective.undesirable_weight", nullptr, settings);
  } else {
    if (keys.was_given("beta") && !keys.was_given("loss_type"))
      settings.change("beta", "is taken for DPO's; for a file of ORPOTrainer write objective.name: orpo");
    import_losses_of_dpo(keys, settings);
    settings.set("data.kind", "preference", "keys of DPOConfig");
    if (const auto alpha = keys.take_number("rpo_alpha"); alpha && *alpha != 0)
      set_nll(number_as_yaml(*alpha), "rpo_alpha", settings);
    if (keys.take_flag("reference_free")) settings.set("objective.reference", "none", "reference_free");
  }
  set_number(keys, "beta", "objective.beta", nullptr, settings);
  if (const auto share = keys.take_number("label_smoothing"); share && *share != 0)
    settings.set("objective.label_smoothing", number_as_yaml(*share), "label_smoothing");
  if (keys.take_flag("precompute_ref_log_probs"))
    settings.set("objective.reference", "kept", "precompute_ref_log_probs");
  const bool drops_out = keys.was_given("disable_dropout") && !keys.take_flag("disable_dropout");
  if (!drops_out) settings.set("training.dropout", "0", "disable_dropout");
  keys.drop({"disable_dropout"});
  drop_ways(keys, settings);
  return true;
}

}  // namespace trainer::config
