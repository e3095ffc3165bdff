// Preferences in the files of LLaMA-Factory (hparams/finetuning_args.py) and axolotl
// (utils/schemas/config.py).
#include <algorithm>
#include <array>
#include <string_view>

#include "trainer/base/strings.h"

#include "config/import_settings.h"
#include "config/value.h"

namespace trainer::config {
namespace {

// Their number becomes ours; without it, their default where ours is another.
void take_number(GivenKeys& keys, const std::string& theirs, const std::string& ours,
                 ImportedSettings& settings, const char* their_default = nullptr) {
  if (const auto value = keys.take_number(theirs)) {
    settings.set(ours, number_as_yaml(*value), theirs);
  } else if (their_default != nullptr) {
    settings.set(ours, their_default, theirs + ", their default");
  }
}

// One that is 0 where it is off.
void take_if_on(GivenKeys& keys, const std::string& theirs, const std::string& ours,
                ImportedSettings& settings) {
  const auto value = keys.take_number(theirs);
  if (value && *value != 0) settings.set(ours, number_as_yaml(*value), theirs);
}

void set_objective(const std::string& name, const std::string& from, ImportedSettings& settings) {
  settings.set("objective.name", name, from);
  settings.set("data.kind", name == "kto" ? "feedback" : "preference", from);
}

// Both programs mask the prompts of preferences whatever this key says; axolotl's ORPO never masks them.
void leave_out_prompts(const std::string& theirs, GivenKeys& keys, ImportedSettings& settings) {
  if (keys.take_flag(theirs) && settings.value_of("data.loss_on").empty())
    settings.leave_out(theirs, "has no effect on preferences there; only answers are compared and learned");
}

}  // namespace

bool import_preferences_of_llama_factory(const std::string& stage, GivenKeys& keys,
                                         ImportedSettings& settings) {
  if (stage == "rm") {
    set_objective("reward", "stage: rm", settings);
    leave_out_prompts("train_on_prompt", keys, settings);
    return true;
  }
  if (stage == "kto") {
    leave_out_prompts("train_on_prompt", keys, settings);
    set_objective("kto", "stage: kto", settings);
    take_number(keys, "pref_beta", "objective.beta", settings);
    take_number(keys, "kto_chosen_weight", "objective.desirable_weight", settings);
    take_number(keys, "kto_rejected_weight", "objective.undesirable_weight", settings);
    return true;
  }
  if (stage != "dpo") return false;
  const std::string loss = keys.take_text("pref_loss").value_or("sigmoid"), from = "pref_loss: " + loss;
  const bool own_name = loss == "ipo" || loss == "orpo" || loss == "simpo", simpo = loss == "simpo";
  set_objective(own_name ? loss : "dpo", own_name ? from : "stage: dpo", settings);
  if (loss == "hinge") settings.set("objective.loss_type", "hinge", from);
  if (!own_name && loss != "hinge" && loss != "sigmoid")
    settings.leave_out(from, "objective.loss_type is sigmoid, hinge, robust, apo_zero or apo_down");
  take_number(keys, "pref_beta", "objective.beta", settings, simpo ? "0.1" : nullptr);
  if (simpo) take_number(keys, "simpo_gamma", "objective.gamma", settings, "0.5");
  take_if_on(keys, "pref_ftx", "objective.rpo_alpha", settings);
  take_if_on(keys, "dpo_label_smoothing", "objective.label_smoothing", settings);
  leave_out_prompts("train_on_prompt", keys, settings);
  return true;
}

void import_preferences_of_axolotl(GivenKeys& keys, ImportedSettings& settings) {
  const auto rl = keys.take_text("rl");
  if (!rl && keys.take_flag("reward_model")) {
    set_objective("reward", "reward_model", settings);
    keys.drop({"num_labels"});  // one score
    leave_out_prompts("train_on_inputs", keys, settings);
  }
  if (!rl) return;
  constexpr std::array<std::string_view, 5> kKnown{"dpo", "ipo", "orpo", "kto", "simpo"};
  if (std::ranges::find(kKnown, *rl) == kKnown.end()) {
    settings.leave_out("rl: " + *rl,
                       "objective.name is dpo, ipo, orpo, kto, simpo or cpo; the rest is translated "
                       "for supervised fine-tuning");
    return;
  }
  const bool simpo = *rl == "simpo";
  set_objective(*rl, "rl: " + *rl, settings);
  take_number(keys, *rl == "orpo" && keys.has("orpo_alpha") ? "orpo_alpha" : "rl_beta", "objective.beta",
              settings, simpo ? "0.1" : nullptr);
  if (simpo) {
    take_number(keys, "simpo_gamma", "objective.gamma", settings, "0.5");
    take_if_on(keys, "cpo_alpha", "objective.rpo_alpha", settings);
  }
  take_if_on(keys, "rpo_alpha", "objective.rpo_alpha", settings);
  // axolotl trains with TRL, whose loss of the chosen answers is a mean over tokens, and ORPO's has the
  // prompt.
  if (*rl == "orpo" || settings.has("objective.rpo_alpha"))
    settings.set("objective.nll_over", "tokens", "rl: " + *rl);
  if (*rl == "orpo") settings.set("data.loss_on", "everything", "rl: orpo learns the prompts, too");
  leave_out_prompts("train_on_inputs", keys, settings);
  take_if_on(keys, "dpo_label_smoothing", "objective.label_smoothing", settings);
  if (*rl != "kto") return;
  take_number(keys, "kto_desirable_weight", "objective.desirable_weight", settings);
  take_number(keys, "kto_undesirable_weight", "objective.undesirable_weight", settings);
}

}  // namespace trainer::config
