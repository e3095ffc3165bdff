#include "run/start_block.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <fstream>
#include <string>
#include <sys/utsname.h>
#include <thread>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <torch/version.h>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/rank_place.h"
#include "trainer/base/strings.h"
#include "trainer/base/version.h"
#include "trainer/config/load.h"
#include "trainer/data/batching.h"
#include "trainer/device/device.h"
#include "trainer/optim/schedule.h"

#include "base/foreign_errors.h"
#include "config/model_family.h"
#include "data/report_words.h"
#include "hub/name.h"
#include "ops/cpu_products.h"
#include "run/computes_with.h"
#include "run/save_result.h"
#include "weights/weight_format.h"

namespace trainer {
namespace {

struct Count {
  int64_t parameters = 0, trained = 0;
};

Count count_parameters(Model& model) {
  Count count;
  model.for_each_parameter([&](const std::string&, Parameter& parameter) {
    count.parameters += parameter.numel();
    if (parameter.trained()) count.trained += parameter.numel();
  });
  return count;
}

std::string percent_of(int64_t part, int64_t whole) {
  const double tenths =
      std::round(1000.0 * static_cast<double>(part) / static_cast<double>(std::max<int64_t>(whole, 1)));
  return concat(tenths / 10, " %");
}

std::string type_text(Model& model, const Artefacts& artefacts) {
  const bool fp32 = model.dtype() == at::kFloat;
  std::string text = fp32 ? "fp32" : "bf16";
  const WeightFormat* format = nullptr;
  model.for_each_parameter([&](const std::string&, Parameter& parameter) {
    if (const WeightSource* source = parameter.value.source()) format = source->format();
  });
  if (format != nullptr) text += concat(", the frozen linear layers in ", format->name().title);
  if (artefacts.adapter && !fp32) text += ", the adapter kept in fp32";
  return text;
}

std::string method(const Artefacts& artefacts) {
  if (!artefacts.adapter) return "full fine-tuning";
  const AdapterConfig& adapter = *artefacts.adapter;
  const auto* list = std::get_if<std::vector<std::string>>(&adapter.target_modules);
  return concat(adapter.use_dora ? "DoRA r " : "LoRA r ", adapter.r, ", alpha ", adapter.lora_alpha, ", on ",
                list != nullptr ? join(*list) : std::get<std::string>(adapter.target_modules));
}

// "dpo, loss_type sigmoid, beta 0.1, against the model without its adapter"
std::string objective_text(const Config& config) {
  const ObjectiveConfig& objective = config.objective;
  std::string text = objective.name;
  if (objective.embeds()) return concat(text, ", cosines times ", objective.similarity_scale);
  if (objective.row_score() != RowScore::none) return text;
  if (objective.distills())
    return concat(text, ", ", objective.teacher_weight, " of the loss from ", objective.top_k, " tokens of ",
                  hub::shown(objective.teacher.empty() ? objective.logits : objective.teacher), ", ",
                  objective.divergence, " KL, temperature ", objective.temperature);
  if (objective.name == "dpo" || objective.name == "cpo") text += concat(", loss_type ", objective.loss_type);
  text += concat(", beta ", objective.beta);
  if (objective.name == "simpo") text += concat(", gamma ", objective.gamma);
  const Reference reference = config.reference();
  if (reference == Reference::adapter_off) text += ", against the model without its adapter";
  if (reference == Reference::kept)
    text += ", against the model as the run began (log-probabilities in data.cache)";
  return text;
}

std::string batch_text(const Config& config, const Model& model) {
  const TrainingConfig& training = config.training;
  const char* rows = config.objective.compares() && !config.objective.judges() ? " pairs" : "";
  std::string text = concat(config.effective_batch_size(), rows, " per update; at most ");
  if (training.micro_batching == MicroBatching::samples)
    return concat(text, int64_t{training.batch_size}, " samples at once");
  const DataConfig& data = config.data;
  text +=
      concat(training.batch_size, " x ", model.encoder_decoder() ? data.max_source_length : data.max_length);
  if (model.encoder_decoder() && config.objective.row_score() == RowScore::none)
    text += concat(" + ", training.batch_size, " x ", data.max_target_length);
  return text + " tokens at once";
}

// What the default of the learning rate follows (src/config/section_optimizer.cpp).
const char* default_rate_of(const Config& config) {
  if (config.objective.compares() && config.objective.row_score() == RowScore::none)
    return config.lora ? "of preferences with LoRA" : "of preferences";
  if (config.lora) return "with LoRA";
  if (config::model_family(config.model.path) == config::kT5) return "for all weights of T5";
  return config.optimizer.name == "adafactor" ? "of Adafactor" : "for all weights of a decoder";
}

// "2e-04, the default with LoRA; cosine, after a warm-up of 12 steps"
std::string learning_rate_text(const Config& config, const RunLength& length) {
  const OptimizerConfig& optimizer = config.optimizer;
  if (optimizer.relative_step) return "by the number of updates (optimizer.relative_step)";
  std::string text = value_text(config, "optimizer.learning_rate");
  if (!config.origins.empty() && !config.origins.contains("optimizer.learning_rate"))
    text += concat(", the default ", default_rate_of(config));
  text += concat("; ", value_text(config, "optimizer.lr_scheduler_type"));
  const int64_t warmup = Schedule(optimizer, length.total_steps).warmup_steps();
  if (warmup > 0 && optimizer.lr_scheduler_type != SchedulerType::constant)
    text += concat(", after a warm-up of ", grouped(warmup), warmup == 1 ? " step" : " steps");
  return text;
}

// Steps between two events; 0: there are none.
int64_t every(IntervalStrategy strategy, int64_t steps, const RunLength& length) {
  if (strategy == IntervalStrategy::no) return 0;
  return strategy == IntervalStrategy::epoch ? length.steps_per_epoch : steps;
}

std::string evaluations_text(const TrainingConfig& training) {
  switch (training.eval_strategy) {
    case IntervalStrategy::no:
      return "none (training.eval_strategy: no)";
    case IntervalStrategy::steps:
      return concat("every ", grouped(training.eval_steps), " steps and at the end");
    case IntervalStrategy::epoch:
      return "after every epoch and at the end";
  }
  return "";
}

// Values that are allowed and hardly ever meant.
void warn_of_unusual(const Config& config, Model& model) {
  const OptimizerConfig& optimizer = config.optimizer;
  if (optimizer.learning_rate > 0.1 && !optimizer.relative_step)
    log::warning(concat(
        "optimizer.learning_rate: ", optimizer.learning_rate,
        " is far above what trains a model (1e-5 for all weights of a decoder, 1e-4 for T5, 2e-4 for LoRA)"));
  if (config.training.max_steps < 0 && config.training.num_train_epochs >= 100)
    log::warning(concat("training.num_train_epochs: ", config.training.num_train_epochs,
                        " times over the same data is rarely meant; most fine-tuning takes 1 to 5"));
  bool above = false;
  model.for_each_parameter([&](const std::string& name, Parameter& parameter) {
    if (above || !parameter.trained() || !name.ends_with(".lora_A.weight")) return;
    const at::Tensor matrix = parameter.value.tensors().front();
    if (matrix.dim() != 2 || matrix.size(0) <= matrix.size(1)) return;
    above = true;
    log::warning(concat("lora.r: ", matrix.size(0), " is above the size of the matrix at ", name, " (",
                        matrix.size(1), " inputs): it trains more numbers than the matrix has"));
  });
}

// Here the kind of the rows and the number of processes are known.
void warn_of_idle_keys(Config config, const DataReport& rows) {
  config.data.kind = rows.kind;
  config.parallel.gpus = rank_place().count;
  config.origins.try_emplace("parallel.gpus");
  std::vector<IdleKey> idle = keys_without_effect(config);
  if (rows.kind == DataKind::seq2seq && rows.target_field.empty()) {
    // Conversations for an encoder-decoder are read as those of a chat.
    config.data.kind = DataKind::chat;
    const std::vector<IdleKey> in_chats = keys_without_effect(config);
    std::erase_if(idle, [&](const IdleKey& key) {
      return std::ranges::find(in_chats, key.key, &IdleKey::key) == in_chats.end();
    });
  }
  for (const IdleKey& key : idle) key.overridden ? log::info(key.text) : log::warning(key.text);
}

std::string padding_text(const Config& config, const Model& model, const PaddingReport& padding) {
  const std::string share = concat(percent_of(padding.padded_tokens - padding.tokens, padding.padded_tokens),
                                   " of what is computed");
  if (config.data.packs() || !model.packs()) return share;
  return concat(share, "; data.packing: true avoids it");
}

using Json = nlohmann::ordered_json;
constexpr size_t kMostStarts = 100;

// The value after ':' in the first line of a file in /proc that begins with `name`; "" if there is none.
std::string proc_value(const char* path, const std::string& name) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(name)) continue;
    const size_t at = line.find_first_not_of(" \t", line.find(':') + 1);
    return at == std::string::npos ? "" : line.substr(at);
  }
  return "";
}

std::string processor() {
  const std::string name = proc_value("/proc/cpuinfo", "model name");
  return concat(name.empty() ? "unknown" : name, ", ", std::thread::hardware_concurrency(), " threads");
}

std::string main_memory() {
  return bytes_string(static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE));
}

Json earlier_starts(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return Json::array();
  try {
    const Json stored = Json::parse(read_file(file));
    if (stored.is_object() && stored.contains("starts") && stored["starts"].is_array())
      return stored["starts"];
  } catch (const std::exception& e) {
    log::warning(concat(file.string(), ": cannot be read, and is written anew: ", own_words(e)));
  }
  return Json::array();
}

Json this_start(Model& model, c10::Device device, const RunLength& length, int64_t first_step) {
  int64_t parameters = 0, trained = 0;
  model.for_each_parameter([&](const std::string&, Parameter& parameter) {
    parameters += parameter.numel();
    if (parameter.trained()) trained += parameter.numel();
  });
  utsname system{};
  ::uname(&system);
  return {{"time", std::time(nullptr)},
          {"after_step", first_step},
          {"total_steps", length.total_steps},
          {"steps_per_epoch", length.steps_per_epoch},
          {"model", model.model_type()},
          {"parameters", parameters},
          {"trained_parameters", trained},
          {"device", describe_device(device)},
          {"processor", processor()},
          {"cpu_products", describe_cpu_products()},
          {"memory", main_memory()},
          {"host", system.nodename},
          {"system", concat(system.sysname, " ", system.release, " ", system.machine)},
          {"trainer", kVersion},
          {"libtorch", TORCH_VERSION},
          {"computes_with", computes_with(device)}};
}

// The settings are compared elsewhere; this is what no setting says.
void log_changes(const Json& before, const Json& now) {
  const Json none = Json::object();
  const Json& there = before.contains("computes_with") ? before["computes_with"] : none;
  for (const auto& [name, value] : now["computes_with"].items()) {
    const std::string& here = value.get_ref<const std::string&>();
    if (there.is_object() && there.contains(name) && there[name].is_string() && there[name] != value)
      log::info(concat(name, ": ", there[name].get<std::string>(), " there, ", here,
                       " here; the run resumes with it, and its results may differ in their last bits"));
  }
}

}  // namespace

RunOutlook outlook_of(const Config& config, const RunLength& length, bool evaluates) {
  const TrainingConfig& training = config.training;
  return {length.total_steps, evaluates ? every(training.eval_strategy, training.eval_steps, length) : 0,
          every(config.save.strategy, config.save.steps, length)};
}

void show_start(OutputDirectory& output, const Config& config, const Artefacts& artefacts, Model& model,
                const RunPlan& plan, const RunDataReport& data, const RunLength& length, int64_t step,
                at::Device device) {
  const Count count = count_parameters(model);
  StartBlock block;
  const auto line = [&](const std::string& name, const std::string& value) {
    block.lines.emplace_back(name, value);
  };
  line("trainer", kVersion);
  line("model", concat(model.model_type(), "  ", hub::shown(config.model.path)));
  line("method", method(artefacts));
  line("parameters", grouped(count.parameters));
  line("trainable", concat(grouped(count.trained), " (", percent_of(count.trained, count.parameters), ")"));
  line("type", type_text(model, artefacts));
  if (const std::string saved = result_types_text(artefacts.weights(model), artefacts, config);
      !saved.empty())
    line("saved as", saved);
  if (!artefacts.taught.text.empty()) line("result says", artefacts.taught.text);
  line("device", describe_device(device));
  if (device.is_cpu()) line("matmul", describe_cpu_products());
  for (const auto& [name, value] : plan.lines()) line(name, value);
  if (config.objective.name != "sft") line("objective", objective_text(config));
  line("batch", batch_text(config, model));
  line("learning rate", learning_rate_text(config, length));
  line("steps", concat(grouped(length.total_steps), " (", grouped(length.steps_per_epoch), " an epoch)"));
  line("tokens", concat(grouped(data.epoch_tokens), " an epoch, ", grouped(data.epoch_supervised_tokens),
                        " of them supervised"));
  line("padding", padding_text(config, model, data.padding));
  if (!data.train.template_date.empty()) line("date", date_text(data.train));
  if (data.eval) line("evaluations", evaluations_text(config.training));
  line("output", output.directory().string());
  output.start(block, outlook_of(config, length, data.eval.has_value()), step);
  if (const int64_t over = plan.plan.total() - plan.limit; plan.known() && plan.limit > 0 && over > 0) {
    log::warning(
        concat("the memory plan is ", bytes_string(over), " above the limit of ", bytes_string(plan.limit),
               ": steps may run out of memory, and are then repeated in smaller micro-batches. `trainer "
               "plan --search` shows what saves memory"));
  }
  warn_of_unusual(config, model);
  warn_of_idle_keys(config, data.train);
  log_report("train data: ", data.train.lines());
  if (data.eval) log_report("eval data: ", data.eval->lines());
  log_report("", data.repeat_lines());
}

void keep_environment(const std::filesystem::path& directory, Model& model, c10::Device device,
                      const RunLength& length, int64_t first_step, bool keeps_results) {
  const std::filesystem::path file = directory / "environment.json";
  try {
    Json starts = keeps_results ? earlier_starts(file) : Json::array();
    if (starts.size() >= kMostStarts) starts.erase(1);  // the first one stays
    Json start = this_start(model, device, length, first_step);
    if (!starts.empty()) log_changes(starts.back(), start);
    starts.push_back(std::move(start));
    const auto replace = Json::error_handler_t::replace;  // a name of a host need not be UTF-8
    write_atomically(file, Json{{"starts", std::move(starts)}}.dump(2, ' ', false, replace) + "\n");
  } catch (const FormatError& e) {
    log::warning(concat("the environment is not noted: ", own_words(e)));
  }
}

}  // namespace trainer
