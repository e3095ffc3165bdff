#include "config/declare.h"
#include "config/sections.h"

namespace trainer::config {

Section data_section() {
  using D = DataConfig;
  return section(
      "data", "What it is trained on: files of rows (docs/data.md).",
      {key(&D::train, "train",
           "Training data. A file of JSON lines, a pattern (data/*.jsonl) or a folder; or a list of such "
           "sets, "
           "each also as {path: a.jsonl, weight: 2}: its samples come so often in an epoch."),
       key(&D::eval, "eval",
           "Evaluation data. Paths as for train; or a number such as 0.02: that share of the rows of train "
           "is "
           "held out. Used when training.eval_strategy is steps or epoch."),
       key(&D::kind, "kind",
           "What a row is. seq2seq: input and target of an encoder-decoder (T5). completion: the same for a "
           "decoder, "
           "which learns the target only. text: running text, all of it learnt. auto: from the model and the "
           "first "
           "row."),
       key(&D::input, "input",
           "Field of the input, or a template such as \"Translate: {german}\". Empty: found from the first "
           "row."),
       key(&D::target, "target", "Field of the target, or a template. Empty: found from the first row."),
       key(&D::max_source_length, "max_source_length", "Longer inputs of an encoder-decoder are cut to this.")
           .at_least(1)
           .in("tokens"),
       key(&D::max_target_length, "max_target_length",
           "Longer targets of an encoder-decoder are cut to this.")
           .at_least(1)
           .in("tokens"),
       key(&D::max_length, "max_length",
           "Longer samples of a decoder are cut to this, input and target together.")
           .at_least(1)
           .in("tokens"),
       key(&D::shuffle, "shuffle", "A new order in every epoch. false: the order of the files."),
       key(&D::prefetch, "prefetch",
           "Steps whose data training.num_workers threads make ahead, while earlier ones compute.")
           .at_least(1)
           .in("steps")});
}

}  // namespace trainer::config
