// trainer init: a first configuration, from a look at the data and from memory plans.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>
#include <unistd.h>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/config/load.h"
#include "trainer/data/dataset.h"
#include "trainer/memory/device_memory.h"
#include "trainer/models/load_model.h"
#include "trainer/training/solve_plan.h"

#include "base/text.h"
#include "commands/find_model.h"
#include "commands/library.h"
#include "config/keys.h"
#include "config/weight_formats.h"
#include "run/end_of_run.h"
#include "run/run_model.h"

namespace trainer {
namespace {

constexpr int64_t kRowsLookedAt = 256;
constexpr int64_t kRowsToHoldOut = 100;  // with fewer, a share of them says nothing
constexpr int64_t kSmallModel = 1'000'000'000;

// Returns the memory that a run may use by default of a card, or (0) of this machine.
int64_t usable_memory(int64_t card) {
  if (card > 0) return card / 100 * 95;
  return static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE) / 100 * 80;
}

// A way of training, from the one that changes most to the one that needs least.
struct Method {
  const char* name;
  bool lora, quantised;
  const char* optimizer;
  std::string reason;
};
const Method kFull{"full", false, false, "adamw", "all weights are trained"},
    kFull8{"full", false, false, "adamw_8bit",
           "all weights are trained; the optimizer's state has 8 bits, to fit"},
    kLora{"lora", true, false, "adamw", "LoRA: the model stays as it is, and an adapter is trained"},
    kQlora{"qlora", true, true, "adamw",
           concat("QLoRA: LoRA on weights in ", smallest_weight_format().bits, " bits (",
                  smallest_weight_format().title, "), to fit")};

struct ModelFacts {
  std::filesystem::path path;
  bool encoder_decoder = false, has_tokenizer = false;
  int64_t parameters = 0;
};

ModelFacts look_at_model(const std::string& name) {
  ModelFacts facts;
  facts.path = find_model(name);
  const auto model = model_on_meta(facts.path, at::kFloat, /*train_all=*/false);
  facts.encoder_decoder = model->encoder_decoder();
  model->for_each_parameter(
      [&](const std::string&, const Parameter& parameter) { facts.parameters += parameter.numel(); });
  facts.has_tokenizer = std::filesystem::exists(facts.path / "tokenizer.json") ||
                        std::filesystem::exists(facts.path / "spiece.model");
  return facts;
}

std::vector<Method> methods_for(const std::string& wanted, const ModelFacts& model) {
  if (wanted == "full") return {kFull, kFull8};
  if (wanted == "lora") return {kLora};
  if (wanted == "qlora") return {kQlora};
  if (model.encoder_decoder || model.parameters < kSmallModel) return {kFull, kLora, kQlora};
  return {kLora, kQlora};
}

// The smallest usual length with room for somewhat longer samples than those that were seen.
int64_t length_for(int64_t longest) {
  int64_t length = 128;
  while (length < 8192 && length < longest + longest / 4) length *= 2;
  return length;
}

std::optional<DataReport> look_at_rows(Config config, const InitOptions& options, const ModelFacts& model) {
  if (config.data.train.empty()) return std::nullopt;
  if (!model.has_tokenizer) {
    log::warning(concat("the rows are not looked at: ", model.path.string(), " has no tokenizer"));
    return std::nullopt;
  }
  config.model.path = options.model_path;
  config.data.train = options.data_paths;
  config.data.max_samples = kRowsLookedAt;
  config.data.bad_rows = BadRows::skip;
  const auto tokenizer = load_run_tokenizer(config);
  return Dataset::open_train(config, *tokenizer, model.encoder_decoder).report();
}

void choose_lengths(Config& config, const DataReport& rows, bool encoder_decoder) {
  const int64_t input = rows.input.lengths.longest(), target = rows.target.lengths.longest();
  if (encoder_decoder) {
    config.data.max_source_length = length_for(input);
    config.data.max_target_length = length_for(target);
  } else {
    config.data.max_length = length_for(input + target);
  }
}

Config beginning(const InitOptions& options) {
  Config config = load_config(std::nullopt, {});
  config.model.path = options.model;
  config.data.train = options.data;
  config.output_dir = options.output_dir;
  if (options.card == 0) {
    config.device = "cpu";
  } else {
    config.model.dtype = ModelDtype::bf16;
  }
  return config;
}

// The values are those that a configuration without them has.
Config with_method(Config config, const Method& method) {
  config.optimizer.name = method.optimizer;
  if (method.lora) config.lora.emplace();
  config::set_dependent_defaults(config);
  if (method.quantised) config.model.quantize = smallest_weight_format().name;
  return config;
}

struct Chosen {
  Config config;
  Method method;
  MemoryPlan plan;
};

Chosen choose(const Config& base, const InitOptions& options, const ModelFacts& model) {
  PlanTarget target;
  target.device = options.card == 0 ? c10::kCPU : c10::kCUDA;
  target.dtype = options.card == 0 ? automatic_dtype(c10::kCPU) : at::kBFloat16;
  const int64_t limit = usable_memory(options.card);
  for (const Method& method : methods_for(options.method, model)) {
    Planner planner(with_method(base, method), model.path, target);
    const auto found = planner.cheapest(limit, /*whatever=*/true);
    if (!found) {
      log::info(concat(method.name, " (", method.optimizer, "): does not fit into ", bytes_string(limit)));
      continue;
    }
    Config config = planner.with(*found);
    const int64_t blocks = found->plan.recompute_blocks;
    if (blocks == 0 || blocks == found->plan.num_blocks)
      config.memory.gradient_checkpointing = Recompute(blocks != 0);
    log::info(concat(method.name, " (", method.optimizer, "): ", bytes_string(found->plan.total()), " of ",
                     bytes_string(limit), ", batch_size ", found->plan.batch_size, ", ", blocks, " of ",
                     found->plan.num_blocks, " blocks recomputed"));
    return {config, method, found->plan};
  }
  throw of_family(
      ErrorCode::oom_plan,
      OutOfMemoryError(
          concat("init: this model does not fit into ", bytes_string(limit), " in any way that was tried",
                 options.method == "auto" ? "" : "; leave out --method",
                 "; take a smaller model or a larger card, or write the file by hand with memory.offload "
                 "(docs/memory.md)")));
}

// The text of the file. Values come from the configuration, so that they read back as they are.
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

std::string rows_text(const DataReport& rows) {
  return concat("Of the first ", grouped(rows.rows), rows.rows == 1 ? " row" : " rows", ": kind ",
                name_of(rows.kind), ", ", rows.input_field, rows.target_field.empty() ? "" : " -> ",
                rows.target_field, "; ", rows.input_name(), " up to ", grouped(rows.input.lengths.longest()),
                " tokens",
                rows.target.lengths.count() > 0
                    ? concat(", ", rows.target_name(), " up to ", grouped(rows.target.lengths.longest()))
                    : "",
                rows.malformed.count > 0 ? concat("; ", rows.malformed.count, " cannot be used") : "");
}

void write_data(Writer& writer, const Config& config, const std::optional<DataReport>& rows,
                bool encoder_decoder) {
  writer.section("data");
  writer.key("train", "One sample a row: JSON lines, CSV, TSV; files, folders or patterns (docs/data.md).");
  if (rows) {
    writer.comment(rows_text(*rows), "  # ");
    writer.key("kind");
  }
  if (!config.data.eval.empty()) writer.key("eval", "This share of the rows is held out, for evaluation.");
  const std::string longer = "Longer samples are truncated; `trainer data --config` tells how many.";
  if (encoder_decoder) {
    writer.key("max_source_length", longer);
    writer.key("max_target_length");
  } else {
    writer.key("max_length", longer);
  }
}

void write_training(Writer& writer, const Config& config, const MemoryPlan& plan) {
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
                    plan.num_blocks, "."));
}

std::string written(const InitOptions& options, const ModelFacts& model,
                    const std::optional<DataReport>& rows, const Chosen& chosen) {
  const Config& config = chosen.config;
  Writer writer(config);
  writer.comment(concat(options.model, " (", grouped(model.parameters), " parameters) on ",
                        options.card == 0 ? "the CPU" : concat("a card of ", bytes_string(options.card)),
                        "."));
  writer.comment(concat("Planned, not measured: ", bytes_string(chosen.plan.total()), " of ",
                        bytes_string(usable_memory(options.card)),
                        ". Try: trainer plan --config THIS_FILE --search"));
  writer.comment("All keys and what they mean: trainer config --config THIS_FILE");
  writer.section("model");
  writer.key("path",
             model.has_tokenizer ? "" : "Enough for `trainer plan`; training needs the model's directory.");
  writer.key("dtype");
  if (config.model.quantises())
    writer.key("quantize",
               concat("Weights in ", smallest_weight_format().bits, " bits (docs/quantization.md)."));
  if (config.lora) {
    writer.section("lora");
    writer.key("r", concat(chosen.method.reason, ". A higher r: more capacity, more memory."));
    writer.key("lora_alpha");
    writer.key("target_modules");
  } else {
    writer.comment(concat("There is no section `lora`: ", chosen.method.reason, "."), "\n# ");
  }
  write_data(writer, config, rows, model.encoder_decoder);
  write_training(writer, config, chosen.plan);
  writer.section("save");
  writer.key("total_limit", "Only the newest checkpoints are kept, and the best one.");
  writer.top_level();
  if (options.card == 0) writer.key("device");
  writer.key("output_dir", "The result, checkpoints, metrics.jsonl and log.txt.");
  return writer.text();
}

std::string first_configuration(const InitOptions& options) {
  set_up_cpu(0);
  const ModelFacts model = look_at_model(options.model_path);
  Config config = beginning(options);
  const std::optional<DataReport> rows = look_at_rows(config, options, model);
  if (rows) {
    log::info(rows_text(*rows));
    config.data.kind = rows->kind;
    choose_lengths(config, *rows, model.encoder_decoder);
    if (rows->rows >= kRowsToHoldOut) {
      config.data.eval.held_out = 0.05;
      config.training.eval_strategy = IntervalStrategy::epoch;
    }
  }
  return written(options, model, rows, choose(config, options, model));
}

const InLibrary init_in_library(+[](InitOptions& options) {
  translate_torch_errors("The plan itself did not fit; it needs some 200 MB.",
                         [&] { options.yaml = first_configuration(options); });
});

}  // namespace
}  // namespace trainer
