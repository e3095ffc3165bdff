#include "config/declare.h"
#include "config/sections.h"

namespace trainer::config {

Section evaluation_section() {
  using E = EvaluationConfig;
  return section(
      "evaluation", "What evaluations tell besides the loss, while training and in `trainer eval`.",
      {key(&E::generate, "generate", OnResume::may_change,
           "Also generate an answer to each input and score it against its target. It takes a pass through "
           "the model for each new token."),
       key(&E::max_samples, "max_samples", OnResume::may_change,
           "Inputs to answer, spread evenly over the data. 0: all. Default: 200 while training, all in "
           "`trainer eval`. The loss is always that of all samples.")
           .at_least(0)
           .in("samples"),
       key(&E::generation_batch_size, "generation_batch_size", OnResume::may_change,
           "Inputs to answer at once. Fewer where they do not fit into memory. Default: as "
           "training.eval_batch_size.")
           .at_least(1)
           .in("samples"),
       key(&E::max_new_tokens, "max_new_tokens", OnResume::may_change,
           "Longest answer. Default: half as many tokens again as the longest target of the data has.")
           .at_least(1)
           .in("tokens"),
       key(&E::num_beams, "num_beams", OnResume::may_change, "Beams of each answer. 1: greedy.").at_least(1),
       key(&E::metrics, "metrics", OnResume::may_change,
           "How answers are scored. A list of exact_match, f1, rouge, bleu, chrf and json; json counts only "
           "where all targets are JSON objects or arrays.")
           .matching("exact_match|f1|rouge|bleu|chrf|json", "exact_match, f1, rouge, bleu, chrf or json"),
       key(&E::show, "show", OnResume::may_change,
           "Answers to show beside their targets. The same ones every time.")
           .at_least(0)
           .in("samples")});
}

}  // namespace trainer::config
