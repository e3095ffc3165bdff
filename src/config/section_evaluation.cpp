#include "config/declare.h"
#include "config/sections.h"

namespace trainer::config {

Section evaluation_section() {
  using E = EvaluationConfig;
  return section(
      "evaluation", "What evaluations report besides the loss, during training and in `trainer eval`.",
      {key(&E::generate, "generate", OnResume::may_change,
           "Also generate an answer to each input and score it against its target. This takes a pass through "
           "the model for each new token."),
       key(&E::max_samples, "max_samples", OnResume::may_change,
           "Inputs to answer, spread evenly over the data. 0: all. Default: 200 during training, all in "
           "`trainer eval`. The loss always covers all samples.")
           .at_least(0)
           .at_most(1e12)
           .in("samples"),
       key(&E::generation_batch_size, "generation_batch_size", OnResume::may_change,
           "Inputs to answer at once. Fewer if they do not fit into memory. Default: the same as "
           "training.eval_batch_size.")
           .at_least(1)
           .at_most(1e6)
           .in("samples"),
       key(&E::max_new_tokens, "max_new_tokens", OnResume::may_change,
           "Longest answer. Default: 1.5 times as long as the longest target of the data.")
           .at_least(1)
           .at_most(1e7)
           .in("tokens"),
       key(&E::num_beams, "num_beams", OnResume::may_change, "Beams per answer. 1: greedy.")
           .at_least(1)
           .at_most(1000),
       key(&E::metrics, "metrics", OnResume::may_change,
           "Scores of the answers. A list of exact_match, f1, rouge, bleu, chrf and json; json is computed "
           "only if all targets are JSON objects or arrays.")
           .matching("exact_match|f1|rouge|bleu|chrf|json", "exact_match, f1, rouge, bleu, chrf or json"),
       key(&E::show, "show", OnResume::may_change,
           "Answers to show next to their targets. The same ones every time.")
           .at_least(0)
           .at_most(1e6)
           .in("samples")});
}

}  // namespace trainer::config
