// trainer init: a first configuration, from a look at the data and from memory plans.
#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <unistd.h>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/config/load.h"
#include "trainer/device/gpu_probe.h"
#include "trainer/formats/model_directory.h"
#include "trainer/memory/device_memory.h"
#include "trainer/models/load_model.h"
#include "trainer/text/tokenizer.h"
#include "trainer/training/solve_plan.h"

#include "base/text.h"
#include "commands/checkup.h"
#include "commands/find_model.h"
#include "commands/init_rows.h"
#include "commands/init_yaml.h"
#include "commands/library.h"
#include "commands/plan_cards.h"
#include "config/keys.h"
#include "config/memory_file.h"
#include "config/weight_formats.h"
#include "data/columns.h"
#include "data/data_files.h"
#include "ops/cpu_products.h"
#include "run/end_of_run.h"

namespace trainer {
namespace {

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
  RowsModel rows;
  int64_t parameters = 0;
};

ModelFacts look_at_model(const std::string& name) {
  ModelFacts facts;
  facts.rows.path = find_model(name);
  const auto model = model_on_meta(facts.rows.path, at::kFloat, /*train_all=*/false);
  facts.rows.encoder_decoder = model->encoder_decoder();
  if (!model->encoder_decoder())
    facts.rows.positions = config_int(model->config(), "max_position_embeddings", 0);
  model->for_each_parameter(
      [&](const std::string&, const Parameter& parameter) { facts.parameters += parameter.numel(); });
  facts.rows.has_tokenizer = has_tokenizer(facts.rows.path);
  return facts;
}

std::vector<Method> methods_for(const std::string& wanted, const ModelFacts& model) {
  if (wanted == "full") return {kFull, kFull8};
  if (wanted == "lora") return {kLora};
  if (wanted == "qlora") return {kQlora};
  if (model.rows.encoder_decoder || model.parameters < kSmallModel) return {kFull, kLora, kQlora};
  return {kLora, kQlora};
}

Config beginning(const InitOptions& options, int64_t card) {
  Config config = load_config(std::nullopt, {});
  config.model.path = options.model;
  config.data.train = options.data;
  config.output_dir = options.output_dir;
  if (card == 0) {
    config.device = "cpu";
  } else {
    config.model.dtype = ModelDtype::bf16;
  }
  return config;
}

// The values are those that a configuration without them has.
Config with_method(Config config, const Method& method, const InitOptions& options) {
  config.optimizer.name = method.optimizer;
  if (method.lora) config.lora.emplace();
  config.model.path = options.model_path;  // its config.json says which defaults are the model's
  config::set_dependent_defaults(config);
  config.model.path = options.model;
  if (method.quantised) config.model.quantize = smallest_weight_format().name;
  return config;
}

struct Chosen {
  Config config;
  Method method;
  MemoryPlan plan;
};

Chosen choose(const Config& base, const InitOptions& options, int64_t card, const ModelFacts& model) {
  PlanTarget target;
  target.device = card == 0 ? c10::kCPU : c10::kCUDA;
  target.dtype = card == 0 ? automatic_dtype(c10::kCPU) : at::kBFloat16;
  const int64_t limit = usable_memory(card);
  for (const Method& method : methods_for(options.method, model)) {
    Planner planner(with_method(base, method, options), model.rows.path, target);
    const auto found = planner.cheapest(limit, /*whatever=*/true);
    if (!found) {
      log::info(concat(method.name, " (", method.optimizer, "): does not fit into ", bytes_string(limit)));
      continue;
    }
    Config config = planner.with(*found);
    const int64_t blocks = found->plan.recompute_blocks;
    if (blocks == found->plan.num_blocks) config.memory.gradient_checkpointing = true;
    log::info(concat(method.name, " (", method.optimizer, "): ", bytes_string(found->plan.total()), " of ",
                     bytes_string(limit), ", batch_size ", found->plan.batch_size, ", ",
                     recomputed_text(found->plan)));
    return {config, method, found->plan};
  }
  throw of_family(ErrorCode::oom_plan,
                  OutOfMemoryError(concat(
                      "init: this model does not fit into ", bytes_string(limit),
                      " in any way that was tried", options.method == "auto" ? "" : "; leave out --method",
                      "; take a smaller model or a larger GPU, or write the file by hand with memory.offload "
                      "(docs/memory.md)")));
}

// The memory of a card in bytes, 0 for cpu. A bare number means GB.
std::optional<int64_t> card_bytes(const std::string& text) {
  if (text == "cpu") return 0;
  const bool bare = !text.empty() && text.find_first_not_of("0123456789.") == std::string::npos;
  const std::optional<int64_t> bytes = parse_byte_size(bare ? text + "GB" : text);
  return bytes && *bytes > 0 ? bytes : std::nullopt;
}

bool has_gpu() { return !system_gpus().look().visible().empty(); }

// What a run here would train on.
std::string card_of_this_machine() {
  int64_t most = 0;
  for (const Gpu& gpu : system_gpus().look().visible()) most = std::max(most, gpu.total);
  return most > 0 ? concat(most / 1'000'000'000, "GB") : "cpu";
}

int64_t settle_card(const InitOptions& options) {
  constexpr const char* kHow = "give a size such as 24GB, or cpu";
  if (options.card.empty() && options.ask) {
    const auto problem_of = [&](const std::string& answer) {
      return std::string(card_bytes(answer) ? "" : kHow);
    };
    return *card_bytes(options.ask("Memory of the GPU (24GB), or cpu", card_of_this_machine(), problem_of));
  }
  const std::string card = options.card.empty() ? card_of_this_machine() : options.card;
  const std::optional<int64_t> bytes = card_bytes(card);
  if (!bytes) throw ConfigError(concat("init: --gpu ", card, ": ", kHow));
  return *bytes;
}

// While it exists, only warnings are logged.
class QuietLog {
 public:
  QuietLog()
      : before_(log::is_shown(log::Level::debug)  ? log::Level::debug
                : log::is_shown(log::Level::info) ? log::Level::info
                                                  : log::Level::warning) {
    if (before_ != log::Level::debug) log::set_level(log::Level::warning);
  }
  ~QuietLog() { log::set_level(before_); }
  QuietLog(const QuietLog&) = delete;
  QuietLog& operator=(const QuietLog&) = delete;

 private:
  log::Level before_;
};

// On another machine than that of the run, its memory, device and disk say nothing of the configuration.
bool counts_here(const Finding& finding, bool here) {
  const bool of_machine = finding.name == "device" || finding.name == "memory" || finding.name == "disk" ||
                          finding.name == "model" || finding.name == "offload";
  return here || !of_machine;
}

// Of a name on the hub, only the tokenizer has been downloaded.
bool has_weights(const std::filesystem::path& model) {
  return std::ranges::any_of(std::filesystem::directory_iterator(model),
                             [](const auto& entry) { return entry.path().extension() == ".safetensors"; });
}

// Keeps in the options what `trainer doctor` will say of the file.
void check_as_doctor(InitOptions& options, const ModelFacts& model, int64_t card) {
  const config::MemoryFile file(options.yaml);
  Config config = load_config(file.path(), {});
  config.model.path = options.model_path;
  config.data.train = options.data_paths;
  Checkup checkup;
  const bool here = card == 0 || has_gpu();
  const bool waits = options.model != options.model_path && !has_weights(model.rows.path);
  if (!waits && (here || model.parameters < kSmallModel)) {
    const QuietLog quiet;
    set_cpu_products(config.training.cpu_products);
    check_run(checkup, config);
  } else {
    for (const TrainingProblem& problem : problems_for_training(config))
      checkup.failed("configuration", problem.text, problem.code);
  }
  std::vector<std::string> problems;
  for (const Finding& finding : checkup.findings()) {
    std::string text = finding.advice.empty() ? finding.text : concat(finding.text, "; ", finding.advice);
    for (size_t at = 0; (at = text.find(file.path())) != std::string::npos;)
      text.replace(at, file.path().size(), options.out);
    if (finding.verdict == Verdict::ok || finding.name == "data") continue;  // the rows were shown
    const bool fails = finding.verdict == Verdict::failed && counts_here(finding, here);
    if (fails && problems.empty()) options.problem_code = finding.code;
    if (fails) problems.push_back(concat(finding.name, ": ", text));
    if (!fails) log::warning(concat("doctor: ", finding.name, ": ", text));
  }
  for (const Finding& finding : checkup.findings()) {
    if (finding.name != "data" || finding.verdict != Verdict::failed) continue;
    if (problems.empty()) options.problem_code = finding.code;
    problems.push_back(concat("data: ", finding.text));
  }
  options.problem = join(problems, "\n  ");
  options.verdict =
      waits  ? "the run downloads the weights; then `trainer doctor` can check the rest"
      : here ? checkup.conclusion()
             : "planned for a GPU that this machine has not; `trainer doctor` there checks the rest";
}

enum class FolderPart { train, validation, test, other };

// By the first word of the name, or of the folder in it: train-00001.csv, validation/part.csv.
FolderPart part_of(const std::filesystem::path& name) {
  const std::string first = lower_case(name.begin()->string());
  const std::string word = first.substr(0, first.find_first_not_of("abcdefghijklmnopqrstuvwxyz"));
  const auto is = [&](std::initializer_list<const char*> words) {
    return std::ranges::count(words, word) > 0;
  };
  if (is({"train", "training"})) return FolderPart::train;
  if (is({"validation", "valid", "val", "dev", "eval", "evaluation"})) return FolderPart::validation;
  return is({"test", "testing"}) ? FolderPart::test : FolderPart::other;
}

// A folder of train.csv and test.csv must not be trained on as a whole.
void separate_parts(InitOptions& options) {
  if (options.data.size() != 1 || !std::filesystem::is_directory(options.data_paths.front().path)) return;
  const DataSource folder = options.data_paths.front();
  std::map<FolderPart, std::vector<DataSource>> parts;
  for (const std::filesystem::path& file : data_files(folder))
    parts[part_of(file.lexically_relative(folder.path))].emplace_back(file.string());
  if (parts.size() < 2 || !parts.contains(FolderPart::train) || parts.contains(FolderPart::other)) return;
  options.data = options.data_paths = parts[FolderPart::train];
  options.eval =
      parts.contains(FolderPart::validation) ? parts[FolderPart::validation] : parts[FolderPart::test];
  log::info(concat(folder.path, ": its files are named by their parts: ", options.data.size(),
                   " to train on, ", options.eval.size(), " to evaluate"));
}

Config with_rows(Config config, const InitOptions& options, const RowsFound& rows) {
  const std::vector<DataSource> train = config.data.train;
  config.data = rows.data;
  config.data.train = train;
  if (!options.eval.empty()) {
    config.data.eval.sources = options.eval;
    config.training.eval_strategy = IntervalStrategy::epoch;
  } else if (rows.holds_out) {
    config.data.eval.held_out = kHeldOut;
    config.training.eval_strategy = IntervalStrategy::epoch;
  }
  return config;
}

void write_first_configuration(InitOptions& options) {
  set_up_cpu(0);
  if (!options.card.empty()) settle_card(options);  // a mistake in it comes first
  separate_parts(options);
  const Columns columns = look_at_columns(options.data_paths, "");
  const ModelFacts model = look_at_model(options.model_path);
  const FieldChoice fields = settle_fields(columns, options, model.rows.encoder_decoder);
  const int64_t card = settle_card(options);
  const Config base = beginning(options, card);
  const RowsFound rows = look_at_rows(base, fields, options, model.rows);
  const Chosen chosen = choose(with_rows(base, options, rows), options, card, model);
  InitNotes notes{
      .title = concat(options.model, " (", grouped(model.parameters), " parameters) on ",
                      card == 0 ? "the CPU" : concat("a GPU of ", bytes_string(card)), "."),
      .memory = concat("Planned, not measured: ", bytes_string(chosen.plan.total()), " of ",
                       bytes_string(usable_memory(card)), ". Try: trainer plan --config THIS_FILE --search"),
      .method = chosen.method.reason,
      .has_tokenizer = model.rows.has_tokenizer,
      .blocks = chosen.plan.num_blocks,
      .rows = rows};
  options.yaml = first_configuration_text(chosen.config, notes);
  if (rows.looked_at) check_as_doctor(options, model, card);
}

const InLibrary init_in_library(+[](InitOptions& options) {
  translate_torch_errors("The plan itself did not fit; it needs some 200 MB.",
                         [&] { write_first_configuration(options); });
});

}  // namespace
}  // namespace trainer
