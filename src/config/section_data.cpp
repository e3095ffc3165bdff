#include <utility>

#include "config/declare.h"

namespace trainer::config {

Section data_section() {
  using D = DataConfig;
  return section(
      "data", "The data to train on: files of rows (docs/data.md).",
      {key(&D::train, "train", OnResume::fixes_run_by_content,
           "Training data. A file of JSON lines, a pattern (data/*.jsonl), a folder or the name of a data "
           "set on the Hugging Face Hub (tatsu-lab/alpaca, docs/model-names.md); or a list of these. "
           "An entry of a list can also be {path: a.jsonl, weight: 2}: each of its samples is then used that "
           "many times per epoch. With loss_weight: 0.5, its tokens count half in the loss."),
       key(&D::eval, "eval", OnResume::fixes_run_by_content,
           "Evaluation data. Paths as for train; or a number such as 0.02, to hold out that share of the "
           "rows of train. Evaluated as training.eval_strategy says: after every epoch by default."),
       key(&D::kind, "kind", OnResume::fixes_run,
           "What a row is. seq2seq: input and target for an encoder-decoder (T5). completion: input and "
           "target for a decoder, which learns the target only. text: running text, all of it learned. chat: "
           "conversations (messages, conversations, Alpaca's instruction, input and output, or TRL's prompt "
           "and "
           "completion as lists of messages), formatted by the model's chat template. preference: a chosen "
           "and a rejected answer; feedback: a judged answer (docs/preferences.md). span_corruption: running "
           "text, of which an encoder-decoder learns to fill in what is taken out (docs/pretraining.md). "
           "classification: a text or a conversation with a label or a number; pairs: texts that belong "
           "together "
           "(docs/classification.md). "
           "auto: decided by the objective, the model and the first row."),
       key(&D::noise, "noise", OnResume::fixes_run,
           "What span_corruption takes out. spans: parts of about noise_span tokens, each marked by a "
           "sentinel (<extra_id_0>), as T5 was trained. prefix: the end of the text. ul2: UL2's mixture of "
           "seven forms.")
           .idle_without("data.kind", "span_corruption"),
       key(&D::noise_rate, "noise_rate", OnResume::fixes_run,
           "Share of the tokens that span_corruption takes out. null: 0.15, with noise: prefix 0.5.")
           .above(0)
           .below(1)
           .idle_with("data.noise", {"ul2"}),
       key(&D::noise_span, "noise_span", OnResume::fixes_run,
           "Mean length of the parts that noise: spans takes out.")
           .at_least(1)
           .at_most(1e6)
           .in("tokens")
           .idle_without("data.noise", "spans"),
       key(&D::input, "input", OnResume::fixes_run,
           "Field of the input, or a template such as \"Translate: {german}\". Empty: detected from the "
           "first row."),
       key(&D::target, "target", OnResume::fixes_run,
           "Field of the target, or a template. Empty: detected from the first row."),
       key(&D::max_source_length, "max_source_length", OnResume::fixes_run,
           "Longest input of an encoder-decoder. long_samples says what happens to longer ones.")
           .at_least(1)
           .at_most(1e7)
           .in("tokens")
           .idle_with("objective.name", {"embedding", "token_classification"})
           .idle_with("data.kind", {"completion", "text"}),
       key(&D::max_target_length, "max_target_length", OnResume::fixes_run,
           "Longest target of an encoder-decoder. long_samples says what happens to longer ones.")
           .at_least(1)
           .at_most(1e7)
           .in("tokens")
           .idle_with("objective.name", {"embedding", "token_classification"})
           .idle_with("data.kind", {"completion", "text"}),
       key(&D::max_length, "max_length", OnResume::fixes_run,
           "Longest sample of a decoder, input and target together, or text of an encoder alone. "
           "long_samples says what happens to longer "
           "ones.")
           .at_least(1)
           .at_most(1e7)
           .in("tokens")
           .idle_with("data.kind", {"seq2seq", "span_corruption"}),
       key(&D::long_samples, "long_samples", OnResume::fixes_run,
           "What happens to samples that are too long. truncate: they are truncated. drop: they are left "
           "out. split: running text (kind: text) becomes several samples, and nothing is lost; with kind: "
           "span_corruption it always does, unless drop leaves the row out."),
       key(&D::truncation_side, "truncation_side", OnResume::fixes_run,
           "Side on which long samples are truncated. right: the beginning is kept. left: the end is kept.")
           .idle_without("data.long_samples", "truncate"),
       key(&D::max_samples, "max_samples", OnResume::fixes_run,
           "Use only this many samples, the first ones, of each entry of train and of eval. For a quick try. "
           "null: all.")
           .at_least(1)
           .at_most(1e12)
           .in("samples"),
       key(&D::bad_rows, "bad_rows", OnResume::may_change,
           "What happens to rows that cannot be used: malformed, without the field, not UTF-8. error: the "
           "run ends and names them. skip: they are left out, counted, and listed in skipped_rows.jsonl in "
           "output_dir."),
       key(&D::max_malformed, "max_malformed", OnResume::may_change,
           "Largest allowed share of rows that cannot be used, when bad_rows is skip. Above it, the run ends "
           "with exit code 3 before training starts. null: no limit.")
           .at_least(0)
           .below(1)
           .idle_without("data.bad_rows", "skip"),
       key(&D::max_truncated, "max_truncated", OnResume::may_change,
           "Largest allowed share of rows that are truncated, or dropped because they are too long. Above "
           "it, the run ends with exit code 3 before training starts. null: no limit.")
           .at_least(0)
           .below(1)
           .idle_with("data.long_samples", {"split"}),
       key(&D::max_unknown, "max_unknown", OnResume::may_change,
           "Largest allowed share of rows with text that the tokenizer does not know (<unk>). Above it, the "
           "run ends with exit code 3 before training starts. null: no limit.")
           .at_least(0)
           .below(1),
       key(&D::loss_on, "loss_on", OnResume::fixes_run,
           "Which part of a conversation is learned. all_turns: every answer of the assistant, with the "
           "token that ends it. last_turn: the last answer only. everything: all of the text. A message with "
           "weight: 0 is not learned; other weights multiply the loss of its tokens.")
           .idle_with("data.kind", {"seq2seq", "completion", "text"}),
       key(&D::learn_reasoning, "learn_reasoning", OnResume::fixes_run,
           "Whether the reasoning of an answer (its think block) is learned. auto: if the conversation has "
           "any; an empty block that only the template writes is not learned. true: such a block, too. "
           "false: only what comes after the reasoning.")
           .idle_with("data.kind", {"seq2seq", "completion", "text"}),
       key(&D::unknown_marks, "unknown_marks", OnResume::may_change,
           "What happens to conversations with marks on a message that may say what is learned, and that are "
           "not known (docs/data.md): keys that are true or false, or tell of the loss. error: such a row "
           "cannot be used (bad_rows). ignore: the marks are passed over.")
           .idle_with("data.kind", {"seq2seq", "completion", "text"}),
       key(&D::loss_weight, "loss_weight", OnResume::fixes_run,
           "Field with the weight of a row in the loss, a number of 0 or more (or true, false: 1, 0): the "
           "loss of all its tokens is "
           "multiplied by it (docs/data.md). Empty: all rows have the weight 1."),
       key(&D::chat_template, "chat_template", OnResume::fixes_run_by_content,
           "File with a chat template (Jinja) to use instead of the model's own, or the name of one that "
           "comes "
           "with the program: chatml, llama3, gemma, mistral, bars or plain (docs/data.md).")
           .path()
           .idle_with("data.kind", {"seq2seq", "completion", "text"}),
       key(&D::template_date, "template_date", OnResume::fixes_run_by_content,
           "Day that a chat template is told which writes the date (strftime_now), as those of Llama 3.2 do: "
           "2026-05-31. Empty: the day on which the run began, which it keeps when it resumes.")
           .matching("([0-9]{4}-[0-9]{2}-[0-9]{2})?", "a day such as 2026-05-31")
           .idle_with("data.kind", {"seq2seq", "completion", "text"}),
       key(&D::shuffle, "shuffle", OnResume::fixes_run,
           "Shuffle the samples, in a new order for every epoch. false: keep the order of the files."),
       key(&D::packing, "packing", OnResume::may_change,
           "Put the samples of a micro-batch one behind the other, without padding. Samples do not see each "
           "other; the result is the same. A micro-batch has at most batch_size x max_length tokens, for "
           "encoder-decoders batch_size x max_source_length and batch_size x max_target_length. The prompts "
           "of an evaluation's answers lie the same way, with auto only on the CPU. auto: true on the CPU, "
           "and on a GPU in bf16 for decoders whose attention FlashAttention computes, and for T5.")
           .idle_with("objective.name", {"embedding", "token_classification"}),
       key(&D::prefetch, "prefetch", OnResume::may_change,
           "Steps whose data is prepared ahead, while earlier steps compute. training.num_workers threads do "
           "this.")
           .at_least(1)
           .at_most(1000)
           .in("steps"),
       key(&D::cache, "cache", OnResume::may_change,
           "Folder for unpacked files and for indexes of the data, which are made once. Empty: the folder "
           "trainer in $XDG_CACHE_HOME, or in ~/.cache; small files then have no index.")
           .path()});
}

Section evaluation_section() {
  using E = EvaluationConfig;
  Section evaluation = section(
      "evaluation",
      "What evaluations report besides the loss, during training and in `trainer eval`. The other keys need "
      "generate.",
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
       key(&E::skip_special_tokens, "skip_special_tokens", OnResume::may_change,
           "Compare answers and targets as the tokenizer writes both without special tokens. false: with "
           "them, without the one that ends the answer."),
       key(&E::metrics, "metrics", OnResume::may_change,
           "Scores of the answers. A list of exact_match, f1, rouge, bleu, chrf, ter and json; json is "
           "computed only if all targets are JSON objects or arrays.")
           .matching("exact_match|f1|rouge|bleu|chrf|ter|json",
                     "exact_match, f1, rouge, bleu, chrf, ter or json"),
       key(&E::show, "show", OnResume::may_change,
           "Answers to show next to their targets. The same ones every time.")
           .at_least(0)
           .at_most(1e6)
           .in("samples")});
  return idle_but("generate", {.key = "evaluation.generate", .values = {"true"}, .among = false},
                  std::move(evaluation));
}

}  // namespace trainer::config
