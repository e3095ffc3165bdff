#include "commands/init_yaml.h"

#include <sstream>

#include "trainer/base/strings.h"
#include "trainer/config/load.h"

#include "base/text.h"
#include "config/weight_formats.h"

namespace trainer {
namespace {

class Writer {
 public:
  explicit Writer(const Config& config) : config_(config) {}

  void comment(const std::string& text, const char* lead = "# ") {
    for (const std::string& line : wrapped(text, 110)) out_ << lead << line << '\n';
  }
  void section(const char* name) {
    out_ << '\n' << name << ":\n";
    section_ = name;
  }
  void key(const char* name, const std::string& note = "") {
    const std::string full = section_.empty() ? name : section_ + "." + name;
    if (!note.empty()) comment(note, section_.empty() ? "# " : "  # ");
    out_ << (section_.empty() ? "" : "  ") << name << ": " << value_text(config_, full) << '\n';
  }
  void top_level() {
    section_.clear();
    out_ << '\n';
  }
  std::string text() const { return out_.str(); }

 private:
  const Config& config_;
  std::ostringstream out_;
  std::string section_;
};

void write_model(Writer& writer, const Config& config, const InitNotes& notes) {
  writer.section("model");
  writer.key("path",
             notes.has_tokenizer ? "" : "Enough for `trainer plan`; training needs the model's directory.");
  writer.key("dtype");
  if (config.model.quantises())
    writer.key("quantize",
               concat("Weights in ", smallest_weight_format().bits, " bits (docs/quantization.md)."));
  if (config.lora) {
    writer.section("lora");
    writer.key("r", concat(notes.method, ". A higher r: more capacity, more memory."));
    writer.key("lora_alpha");
    writer.key("target_modules");
  } else {
    writer.comment(concat("There is no section `lora`: ", notes.method, "."), "\n# ");
  }
}

void write_lengths(Writer& writer, const Config& config, const RowsFound& rows) {
  const std::string longer = "Longer samples are truncated; `trainer data --config` tells how many.";
  const std::string& note = rows.length_note.empty() ? longer : rows.length_note;
  if (config.data.kind == DataKind::seq2seq || !rows.target_length_note.empty()) {
    writer.key("max_source_length", note);
    writer.key("max_target_length", rows.target_length_note);
  } else {
    writer.key("max_length", note);
    if (config.data.long_samples == LongSamples::split) writer.key("long_samples");
  }
}

void write_data(Writer& writer, const Config& config, const RowsFound& rows) {
  writer.section("data");
  writer.key("train",
             "One sample a row: JSON lines, CSV, TSV, Parquet; files, folders or patterns (docs/data.md).");
  if (!rows.rows_note.empty()) writer.comment(rows.rows_note, "  # ");
  if (config.data.kind != DataKind::automatic) writer.key("kind");
  if (!config.data.input.empty()) writer.key("input");
  if (!config.data.target.empty()) writer.key("target");
  if (!config.data.chat_template.empty()) writer.key("chat_template", rows.template_note);
  if (config.data.bad_rows == BadRows::skip) writer.key("bad_rows", rows.bad_rows_note);
  if (!config.data.eval.empty())
    writer.key("eval", config.data.eval.held_out > 0 ? "This share of the rows is held out, for evaluation."
                                                     : "The files of the folder that are named so.");
  write_lengths(writer, config, rows);
}

void write_training(Writer& writer, const Config& config, int64_t blocks) {
  writer.section("training");
  writer.key("effective_batch_size", "Samples of an update. This changes the result.");
  writer.key("batch_size", "Samples in memory at once. This changes memory and speed only.");
  writer.key("num_train_epochs", "How often each sample is seen.");
  if (config.training.eval_strategy != IntervalStrategy::no) writer.key("eval_strategy");
  writer.section("optimizer");
  if (config.optimizer.name != "adamw") writer.key("name");
  writer.key("learning_rate", "The first thing to try other values of.");
  writer.key("lr_scheduler_type");
  writer.key("warmup_ratio");
  writer.section("memory");
  writer.key("gradient_checkpointing",
             concat("Blocks that are computed again in the backward pass: slower, and less "
                    "memory. The model has ",
                    blocks, "."));
}

}  // namespace

std::string first_configuration_text(const Config& config, const InitNotes& notes) {
  Writer writer(config);
  writer.comment(notes.title);
  writer.comment(notes.memory);
  writer.comment("All keys and what they mean: trainer config --config THIS_FILE");
  write_model(writer, config, notes);
  write_data(writer, config, notes.rows);
  write_training(writer, config, notes.blocks);
  writer.section("save");
  writer.key("total_limit", "Only the newest checkpoints are kept, and the best one.");
  writer.top_level();
  if (config.device == "cpu") writer.key("device");
  writer.key("output_dir", "The result, checkpoints, metrics.jsonl and log.txt.");
  return writer.text();
}

}  // namespace trainer
