#include <utility>

#include "config/declare.h"

namespace trainer::config {
namespace {

// Refused unless the objective is one of these.
Condition unless_one_of(std::vector<std::string> names) {
  return {.states = {{.key = "objective.name", .values = std::move(names), .among = false}},
          .idle = Idle::is_refused};
}

}  // namespace

Section objective_section() {
  using O = ObjectiveConfig;
  return section(
      "objective",
      "What a step optimises: the answers of the rows, preferences (docs/preferences.md), the labels of "
      "texts "
      "(docs/classification.md), or what a teacher says of the answers (docs/distillation.md).",
      {key(&O::name, "name", OnResume::fixes_run,
           "The objective. sft: answers are learned. dpo, ipo, orpo, simpo, cpo: a chosen answer is "
           "preferred "
           "to a rejected one (data.kind: preference). kto: answers are judged, one by one (data.kind: "
           "feedback). classification, regression: a label, or a number, is learned of each text (data.kind: "
           "classification). reward: a score that is higher for the chosen answer than for the rejected one "
           "(Bradley-Terry). Of a T5's encoder alone: token_classification, where each word has a label; "
           "embedding, where a text is nearer to one that belongs to it than to those of other rows. "
           "distill: "
           "answers are learned, and what a teacher thinks of each of their tokens.")
           .one_of({"sft", "dpo", "ipo", "orpo", "kto", "simpo", "cpo", "classification", "regression",
                    "reward", "token_classification", "embedding", "distill"}),
       key(&O::loss_type, "loss_type", OnResume::is_logged,
           "The function of the difference that dpo and cpo minimise. sigmoid, as in their papers; hinge "
           "(SLiC); only dpo: robust (against wrong labels, label_smoothing is their share), apo_zero, "
           "apo_down.")
           .one_of({"sigmoid", "hinge", "robust", "apo_zero", "apo_down"})
           .idle(unless_one_of({"dpo", "cpo"})),
       key(&O::beta, "beta", OnResume::is_logged,
           "How much a preference counts: the weight of the log-probabilities in the reward; for ipo 1 / (2 "
           "beta) is the margin, for orpo it is the weight of the odds ratio.")
           .above(0)
           .at_most(1e6)
           .default_with("objective.name", "simpo", "2")
           .idle(unless_one_of({"dpo", "ipo", "orpo", "kto", "simpo", "cpo"})),
       key(&O::label_smoothing, "label_smoothing", OnResume::is_logged,
           "The share of pairs that are taken to be the wrong way round. With loss_type: sigmoid or robust.")
           .at_least(0)
           .below(0.5)
           .idle(unless_one_of({"dpo", "simpo", "cpo"})),
       key(&O::rpo_alpha, "rpo_alpha", OnResume::is_logged,
           "The weight of the chosen answer's own loss, per token, beside the preference. As in RPO and CPO.")
           .at_least(0)
           .at_most(1e6)
           .default_with("objective.name", "cpo", "1")
           .idle(unless_one_of({"dpo", "ipo", "simpo", "cpo"})),
       key(&O::nll_over, "nll_over", OnResume::is_logged,
           "What the chosen answer's own loss (orpo, rpo_alpha) is the mean of. answers: of the answers, "
           "each "
           "of them the mean over its tokens, as in the papers. tokens: of all tokens of an update, as in "
           "TRL. "
           "With data.loss_on: everything the tokens of the prompt count in it, too, as in TRL's ORPO.")
           .one_of({"answers", "tokens"})
           .idle(unless_one_of({"dpo", "ipo", "orpo", "simpo", "cpo"})),
       key(&O::gamma, "gamma", OnResume::is_logged, "The margin of rewards that simpo aims at.")
           .at_least(0)
           .at_most(1e6)
           .only_with("objective.name", "simpo"),
       key(&O::desirable_weight, "desirable_weight", OnResume::is_logged,
           "The weight of answers that are judged good, in kto.")
           .at_least(0)
           .at_most(1e6)
           .only_with("objective.name", "kto"),
       key(&O::undesirable_weight, "undesirable_weight", OnResume::is_logged,
           "The weight of answers that are judged bad, in kto.")
           .at_least(0)
           .at_most(1e6)
           .only_with("objective.name", "kto"),
       key(&O::length_normalised, "length_normalised", OnResume::is_logged,
           "Compare log-probabilities per token instead of those of whole answers. auto: true for ipo, false "
           "for dpo and cpo. In orpo and simpo it is always so, in kto never.")
           .idle(unless_one_of({"dpo", "ipo", "cpo"})),
       key(&O::reference, "reference", OnResume::fixes_run,
           "Where the log-probabilities of the reference come from, which is the model as the run begins. "
           "adapter_off: from a pass of each step without the adapter. kept: from one pass before the first "
           "step; they are kept in data.cache. none: there is no reference. auto: adapter_off where the "
           "adapter is all that is trained and begins as nothing, else kept.")
           .idle(unless_one_of({"dpo", "ipo", "kto"})),
       key(&O::labels, "labels", OnResume::fixes_run,
           "The classes, in the order of the model's outputs. Empty: those of the model, if it is a "
           "classifier, else those of data.train in alphabetical or numerical order.")
           .idle(unless_one_of({"classification", "token_classification"})),
       key(&O::class_weights, "class_weights", OnResume::fixes_run,
           "Weights of classes in the loss, {spam: 5}; those that are not named have 1.")
           .idle(unless_one_of({"classification", "token_classification"})),
       key(&O::balance_classes, "balance_classes", OnResume::fixes_run,
           "Weigh each class by rows / (classes x rows of the class), so that all count the same.")
           .idle(unless_one_of({"classification", "token_classification"})),
       key(&O::center_rewards_coefficient, "center_rewards_coefficient", OnResume::is_logged,
           "The weight of the squared sum of a pair's rewards beside the loss of reward, which keeps them "
           "around 0 (Eisenstein et al. 2023). TRL recommends 0.01.")
           .at_least(0)
           .at_most(1e6)
           .only_with("objective.name", "reward"),
       key(&O::similarity_scale, "similarity_scale", OnResume::is_logged,
           "What cosines are multiplied with in embedding before the softmax over the texts of an update: 1 "
           "/ "
           "temperature.")
           .above(0)
           .at_most(1e6)
           .only_with("objective.name", "embedding"),
       key(&O::teacher, "teacher", OnResume::fixes_run_by_content,
           "Directory of the teacher of distill, a model or an adapter, or its name on the Hugging Face Hub. "
           "It "
           "runs once over the data, before the model is loaded; what it says is kept in data.cache.")
           .path()
           .only_with("objective.name", "distill"),
       key(&O::logits, "logits", OnResume::fixes_run_by_content,
           "What a teacher of distill has said of the training data: a safetensors file, or a folder of "
           "them, "
           "as `trainer eval --save-logits` writes them. Instead of teacher.")
           .path()
           .only_with("objective.name", "distill"),
       key(&O::top_k, "top_k", OnResume::is_logged,
           "How many tokens are kept of what the teacher says at a place, the likeliest ones. The others "
           "count "
           "as one. For objective.teacher; a file has its own number.")
           .at_least(1)
           .at_most(100000)
           .in("tokens")
           .only_with("objective.name", "distill"),
       key(&O::temperature, "temperature", OnResume::is_logged,
           "What the logits of teacher and model are divided by in distill. Above 1, unlikely tokens count "
           "more.")
           .above(0)
           .at_most(1000)
           .only_with("objective.name", "distill"),
       key(&O::teacher_weight, "teacher_weight", OnResume::is_logged,
           "The share of the teacher in the loss of distill; the rest is that of the labels.")
           .at_least(0)
           .at_most(1)
           .only_with("objective.name", "distill"),
       key(&O::divergence, "divergence", OnResume::is_logged,
           "The distance from the teacher that distill makes small. forward: KL(teacher || model), which "
           "covers "
           "all that the teacher may say. reverse: KL(model || teacher), which keeps to what it would say.")
           .one_of({"forward", "reverse"})
           .only_with("objective.name", "distill")});
}

}  // namespace trainer::config
