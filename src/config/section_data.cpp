#include "config/declare.h"
#include "config/sections.h"

namespace trainer::config {

Section data_section() {
  using D = DataConfig;
  return section(
      "data", "What it is trained on: files of rows (docs/data.md).",
      {key(&D::train, "train", OnResume::fixes_run_by_content,
           "Training data. A file of JSON lines, a pattern (data/*.jsonl) or a folder; or a list of such "
           "sets, "
           "each also as {path: a.jsonl, weight: 2}: its samples come so often in an epoch."),
       key(&D::eval, "eval", OnResume::fixes_run_by_content,
           "Evaluation data. Paths as for train; or a number such as 0.02: that share of the rows of train "
           "is "
           "held out. Used when training.eval_strategy is steps or epoch."),
       key(&D::kind, "kind", OnResume::fixes_run,
           "What a row is. seq2seq: input and target of an encoder-decoder (T5). completion: the same for a "
           "decoder, "
           "which learns the target only. text: running text, all of it learnt. chat: conversations "
           "(messages, "
           "conversations, or Alpaca's instruction, input and output), written by the model's chat template. "
           "auto: from the model and the first row."),
       key(&D::input, "input", OnResume::fixes_run,
           "Field of the input, or a template such as \"Translate: {german}\". Empty: found from the first "
           "row."),
       key(&D::target, "target", OnResume::fixes_run,
           "Field of the target, or a template. Empty: found from the first row."),
       key(&D::max_source_length, "max_source_length", OnResume::fixes_run,
           "Longer inputs of an encoder-decoder are cut to this.")
           .at_least(1)
           .in("tokens"),
       key(&D::max_target_length, "max_target_length", OnResume::fixes_run,
           "Longer targets of an encoder-decoder are cut to this.")
           .at_least(1)
           .in("tokens"),
       key(&D::max_length, "max_length", OnResume::fixes_run,
           "Longer samples of a decoder are cut to this, input and target together.")
           .at_least(1)
           .in("tokens"),
       key(&D::long_samples, "long_samples", OnResume::fixes_run,
           "What becomes of longer samples. truncate: cut. drop: left out. split: running text (kind: text) "
           "becomes several samples, and nothing is lost."),
       key(&D::truncation_side, "truncation_side", OnResume::fixes_run,
           "Where longer samples are cut. right: the beginning stays."),
       key(&D::max_samples, "max_samples", OnResume::fixes_run,
           "Only the first so many samples of each entry of train, and of eval. For a quick try. null: all.")
           .at_least(1)
           .in("samples"),
       key(&D::bad_rows, "bad_rows", OnResume::may_change,
           "What becomes of rows that cannot be used: malformed, without the field, not UTF-8. error: the "
           "run "
           "ends and says which. skip: they are left out, counted, and listed in skipped_rows.jsonl in "
           "output_dir."),
       key(&D::max_malformed, "max_malformed", OnResume::may_change,
           "Largest share of rows that cannot be used, where bad_rows is skip. Above it the run ends with "
           "exit "
           "code 3 before it begins. null: any.")
           .at_least(0)
           .below(1),
       key(&D::max_truncated, "max_truncated", OnResume::may_change,
           "Largest share of rows of which something is cut off or that are dropped for their length; in the "
           "same way.")
           .at_least(0)
           .below(1),
       key(&D::max_unknown, "max_unknown", OnResume::may_change,
           "Largest share of rows with text that the tokenizer does not know (<unk>); in the same way.")
           .at_least(0)
           .below(1),
       key(&D::loss_on, "loss_on", OnResume::fixes_run,
           "What is learnt of a conversation. all_turns: every answer of the assistant with the token that "
           "ends "
           "it. last_turn: the last one. everything: all of the text. A message with weight: 0 is not "
           "learnt."),
       key(&D::chat_template, "chat_template", OnResume::fixes_run_by_content,
           "File of a chat template (Jinja) to use in place of the model's own.")
           .path(),
       key(&D::shuffle, "shuffle", OnResume::fixes_run,
           "A new order in every epoch. false: the order of the files."),
       key(&D::packing, "packing", OnResume::may_change,
           "Decoders: the samples of a micro-batch lie in one row, without padding and without seeing one "
           "another; it has at most batch_size x max_length tokens. The result is the same."),
       key(&D::prefetch, "prefetch", OnResume::may_change,
           "Steps whose data training.num_workers threads make ahead, while earlier ones compute.")
           .at_least(1)
           .in("steps"),
       key(&D::cache, "cache", OnResume::may_change,
           "Folder for unpacked files and for indexes of the data, which are made once. Empty: trainer in "
           "$XDG_CACHE_HOME, or in ~/.cache; there small files have no index.")
           .path()});
}

}  // namespace trainer::config
