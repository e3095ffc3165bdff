// trainer eval: the evaluation of a training run, for any model and data.
#include <algorithm>
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
#include "trainer/formats/model_directory.h"
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
#include "run/fixed_settings.h"
#include "run/run_model.h"
#include "run/teacher_logits.h"

namespace trainer {
namespace {

using Fields = nlohmann::ordered_json;

void print_text(const Fields& fields, const std::vector<ScoreRange>& ranges, std::ostream& out) {
  for (const auto& [name, value] : fields.items()) {
    if (value.is_structured()) continue;  // print_parts() shows it
    out << std::left << std::setw(24) << name;
    if (value.is_string()) {
      out << value.get<std::string>();
    } else if (value.is_number_float()) {
      out << value.get<double>();
    } else {
      out << value.dump();
    }
    const auto range = std::ranges::find(ranges, name, [](const ScoreRange& r) { return "eval_" + r.name; });
    if (range != ranges.end()) out << "  [" << range->low << ", " << range->high << "]";
    out << '\n';
  }
}

// Checked before the work, not after it. An existing file stays as it is.
void check_writable(const std::filesystem::path& file) {
  const bool is_new = !std::filesystem::exists(file);
  AppendedFile{file};
  if (is_new) delete_entry(file);
}

struct Evaluated {
  Fields fields;
  std::optional<Predictions> predictions;
};

// What a model's head scores texts as is what is evaluated, whatever the configuration says of the run.
void settle_scores(Config& config, const Model& model) {
  if (model.head().scores() == nullptr) return;
  const auto head = score_head_in(model.config());
  config.objective.name = objective_of(head->score);
  config.objective.labels.clear();
  if (has_classes(head->score)) config.data.labels.classes = head->labels;
}

// Evaluates config.model.path, as the options say.
Evaluated evaluate_model(Config config, const EvalOptions& options, DeviceLease& lease) {
  const auto begin = std::chrono::steady_clock::now();
  const at::Device device = lease.device;
  const OpenModel opened = open_model(config.model, device, options.base);
  settle_scores(config, *opened.model);
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
  if (options.save_logits > 0)
    save_logits({*opened.model, *opened.tokenizer, {{"the model", teacher_text(config.model.path)}}}, data,
                config, device, options.save_logits, options.logits_folder);
  lease.start.reset();  // the next run may start on this GPU
  Evaluated out;
  if (predictor) out.predictions = predictor->predict(*opened.model, device);
  shown.reset();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;

  out.fields = {{"model", hub::shown(config.model.path)}, {"data", data.name()}};
  const MetricRow row =
      evaluation_row({}, result, out.predictions ? &*out.predictions : nullptr, seconds.count());
  for (const auto& [name, value] : row.values.items()) {
    if (name.starts_with("eval_")) out.fields[name] = value;  // step and epoch make sense only in a run
  }
  return out;
}

// The answers of a file, read before the work. None if --against is a model, which must be there by then.
std::vector<Prediction> answers_in_file(const EvalOptions& options) {
  if (options.against.empty()) return {};
  if (std::filesystem::is_regular_file(options.against)) return predictions_in(options.against);
  require_model_directory(options.against);
  return {};
}

// The answers of the other side, whose rows must be those of `own`.
std::vector<Prediction> other_answers(const EvalOptions& options, std::vector<Prediction> rows,
                                      const Predictions& own, DeviceLease& lease) {
  if (rows.empty()) {
    Config config = options.config;
    config.model.path = options.against;
    log::info(concat("against ", hub::shown(options.against)));
    rows = evaluate_model(config, EvalOptions(), lease).predictions->rows;
  }
  const auto same = [](const Prediction& a, const Prediction& b) {
    return a.origin == b.origin || a.input == b.input;
  };
  if (!std::ranges::equal(rows, own.rows, same)) {
    throw DataError(concat("eval: --against ", options.against, ": its ", rows.size(),
                           " answers are not to the same inputs as the ", own.rows.size(),
                           " of this model; both need the same rows and evaluation.max_samples"));
  }
  return rows;
}

std::vector<ScoreDifference> differences(const EvalOptions& options, std::vector<Prediction> in_file,
                                         const Predictions& own, DeviceLease& lease) {
  TextMetrics other(options.config.evaluation.metrics);
  const std::vector<Prediction> rows = other_answers(options, std::move(in_file), own, lease);
  for (size_t i = 0; i < rows.size(); i++) other.add(rows[i].prediction, rows[i].target, own.rows[i].given);
  return compare(own.metrics, other);
}

// What --generate adds to the numbers: ranges, fields of JSON, and the comparison.
void add_parts(const Predictions& predictions, const std::vector<ScoreRange>& ranges, Fields& fields) {
  for (const ScoreRange& range : ranges) fields["ranges"][range.name] = {range.low, range.high};
  for (const FieldScore& field : predictions.metrics.fields())
    fields["fields"][field.name] = {{"right", field.right}, {"count", field.count}};
}

void add_comparison(const std::string& against, const std::vector<ScoreDifference>& found, Fields& fields) {
  fields["against"] = hub::shown(against);
  for (const ScoreDifference& score : found) {
    fields["differences"][score.name] = {{"this", score.a},
                                         {"other", score.b},
                                         {"difference", score.a - score.b},
                                         {"range", {score.low, score.high}},
                                         {"p", score.p}};
  }
}

// A row for each label: how many texts with it were taken for which class.
void print_confusion(const Fields& fields, std::ostream& out) {
  if (!fields.contains("eval_confusion")) return;
  const auto classes = fields["eval_classes"].get<std::vector<std::string>>();
  out << "\nlabel \\ prediction";
  for (const std::string& name : classes) out << "  " << name;
  out << "  f1\n";
  for (size_t label = 0; label < classes.size(); label++) {
    out << std::left << std::setw(18) << classes[label];
    for (size_t at = 0; at < classes.size(); at++)
      out << "  " << std::right << std::setw(static_cast<int>(classes[at].size()))
          << fields["eval_confusion"][label][at].get<int64_t>();
    out << "  " << fields["eval_class_f1"][label].get<double>() << '\n';
  }
  out << std::left;
}

void print_parts(const Fields& fields, std::ostream& out) {
  print_confusion(fields, out);
  const auto name = [&](const std::string& text) -> std::ostream& {
    return out << std::left << std::setw(24) << text;
  };
  const Fields of_json = fields.value("fields", Fields::object());
  for (const auto& [field, score] : of_json.items()) {
    const auto right = score["right"].get<int64_t>(), count = score["count"].get<int64_t>();
    name("field " + field) << right << " of " << count << " right ("
                           << 100 * static_cast<double>(right) / static_cast<double>(count) << " %)\n";
  }
  if (!fields.contains("differences")) return;
  out << "\nthis model against " << fields["against"].get<std::string>()
      << ": score, other score, difference, 95 % of it, p\n";
  for (const auto& [score, of] : fields["differences"].items()) {
    name(score) << std::setw(12) << of["this"].get<double>() << std::setw(12) << of["other"].get<double>()
                << std::showpos << std::setw(12) << of["difference"].get<double>() << '['
                << of["range"][0].get<double>() << ", " << of["range"][1].get<double>() << std::noshowpos
                << "]  p " << of["p"].get<double>() << '\n';
  }
}

void run_evaluation(const EvalOptions& options) {
  const Config& config = options.config;
  if (!options.predictions_file.empty()) check_writable(options.predictions_file);
  std::vector<Prediction> in_file = answers_in_file(options);
  set_up_cpu(config.training.num_threads);
  set_cpu_products(config.training.cpu_products);
  DeviceLease lease = acquire_device(config.device, config.gpu);
  set_up_device(lease.device, config.memory.limit, config.training.tf32);
  auto [fields, predictions] = evaluate_model(config, options, lease);
  std::vector<ScoreRange> ranges;
  if (predictions) {
    if (!options.predictions_file.empty()) predictions->write(options.predictions_file);
    ranges = predictions->metrics.ranges();
    add_parts(*predictions, ranges, fields);
  }
  if (!options.against.empty())
    add_comparison(options.against, differences(options, std::move(in_file), *predictions, lease), fields);
  if (options.json) {
    std::cout << fields.dump() << '\n' << std::flush;
  } else {
    print_text(fields, ranges, std::cout);
    print_parts(fields, std::cout);
  }
  if (!predictions) return;
  for (const std::string& line : predictions->lines(config.evaluation.show)) log::info(line);
}

const InLibrary eval_in_library(+[](EvalOptions& options) {
  translate_torch_errors(
      "What helps: a smaller training.eval_batch_size (--generate answers so many samples at once); a larger "
      "memory.limit, if the device has it; model.dtype: bf16.",
      [&] { run_evaluation(options); });
});

}  // namespace
}  // namespace trainer
