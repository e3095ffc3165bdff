// trainer eval: the evaluation of a training run, for any model and data.
#include <chrono>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <optional>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/data/dataset.h"
#include "trainer/device/acquire_device.h"
#include "trainer/memory/device_memory.h"
#include "trainer/run/metric_rows.h"
#include "trainer/training/evaluate.h"
#include "trainer/training/predictions.h"

#include "base/progress.h"
#include "commands/library.h"
#include "commands/options.h"
#include "data/report_words.h"
#include "hub/name.h"
#include "memory/set_up_device.h"
#include "ops/cpu_products.h"
#include "run/end_of_run.h"
#include "run/run_model.h"

namespace trainer {
namespace {

using Fields = nlohmann::ordered_json;

void print_text(const Fields& fields, std::ostream& out) {
  for (const auto& [name, value] : fields.items()) {
    out << std::left << std::setw(24) << name;
    if (value.is_string()) {
      out << value.get<std::string>();
    } else if (value.is_number_float()) {
      out << value.get<double>();
    } else {
      out << value.dump();
    }
    out << '\n';
  }
}

// Checked before the work, not after it. An existing file stays as it is.
void check_writable(const std::filesystem::path& file) {
  const bool is_new = !std::filesystem::exists(file);
  AppendedFile{file};
  if (is_new) delete_entry(file);
}

void run_evaluation(const EvalOptions& options) {
  Config config = options.config;
  if (!options.predictions_file.empty()) check_writable(options.predictions_file);
  const auto begin = std::chrono::steady_clock::now();
  set_up_cpu(config.training.num_threads);
  set_cpu_products(config.training.cpu_products);
  DeviceLease lease = acquire_device(config.device, config.gpu);
  const at::Device device = lease.device;
  set_up_device(device, config.memory.limit, config.training.tf32);
  const OpenModel opened = open_model(config.model, device, options.base);
  settle_packing(config, *opened.model, device.type());
  Config of_data = config;  // the rows are written by the template that the model has
  of_data.model.path = opened.chat.string();
  const Dataset data = Dataset::open_eval(of_data, *opened.tokenizer, opened.model->encoder_decoder());
  log_report("", data.report().lines());
  BatchBudget budget;
  std::optional<Predictor> predictor;  // created before the work begins: it may refuse the data
  if (config.evaluation.generate)
    predictor.emplace(data, *opened.tokenizer, config, opened.generation_config(), /*max_samples=*/0);
  std::optional<Progress> shown(std::in_place, "evaluation");
  const EvaluationResult result = evaluate(*opened.model, data, config, device, budget);
  lease.start.reset();  // the next run may start on this GPU
  std::optional<Predictions> predictions;
  if (predictor) {
    predictions = predictor->predict(*opened.model, device);
  }
  shown.reset();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;

  Fields fields{{"model", hub::shown(config.model.path)}, {"data", data.name()}};
  const MetricRow row = evaluation_row({}, result, predictions ? &*predictions : nullptr, seconds.count());
  for (const auto& [name, value] : row.values.items()) {
    if (name.starts_with("eval_")) fields[name] = value;  // step and epoch make sense only in a run
  }
  if (options.json) {
    std::cout << fields.dump() << '\n' << std::flush;
  } else {
    print_text(fields, std::cout);
  }
  if (predictions) {
    for (const std::string& line : predictions->lines(config.evaluation.show)) log::info(line);
    if (!options.predictions_file.empty()) predictions->write(options.predictions_file);
  }
}

const InLibrary eval_in_library(+[](EvalOptions& options) {
  translate_torch_errors(
      "What helps: a smaller training.eval_batch_size (--generate answers so many samples at once); a larger "
      "memory.limit, if the device has it; model.dtype: bf16.",
      [&] { run_evaluation(options); });
});

}  // namespace
}  // namespace trainer
