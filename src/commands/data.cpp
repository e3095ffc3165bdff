// trainer data: a report on the data of a run, without loading its weights.
#include <iostream>
#include <optional>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/data/dataset.h"
#include "trainer/models/load_model.h"

#include "base/progress.h"
#include "base/terminal.h"
#include "commands/library.h"
#include "run/describe_data.h"
#include "run/end_of_run.h"
#include "run/run_model.h"
#include "training/prepare_model.h"

namespace trainer {
namespace {

void refuse_malformed(const RunDataReport& report) {
  if (report.train.malformed.count > 0) throw DataError(report.train.malformed_text());
  if (report.eval && report.eval->malformed.count > 0) throw DataError(report.eval->malformed_text());
}

void print_report(const RunDataReport& report, bool json) {
  if (json) {
    std::cout << to_json_text(report);
  } else {
    const Terminal terminal = stdout_terminal().value_or(Terminal{});
    std::cout << to_text(report, {terminal.width, terminal.colour});
  }
  std::cout.flush();
}

// A malformed row is shown with the rest of the report, and then ends the program as it would end the run.
void run_data(const DataOptions& options) {
  Config config = options.config;
  config.data.bad_rows = BadRows::skip;
  settle_head(config);
  const auto tokenizer = load_run_tokenizer(config);
  const auto model = model_on_meta(config.model.path, at::kFloat, /*train_all=*/false, std::nullopt,
                                   /*offload_weights=*/false, /*ranks=*/1, score_head_for(config));
  const bool encoder_decoder = model->encoder_decoder();
  const Dataset train = Dataset::open_train(config, *tokenizer, encoder_decoder);
  std::optional<Dataset> eval;
  if (!config.data.eval.empty()) eval = Dataset::open_eval(config, *tokenizer, encoder_decoder);
  const SampleOrder order(train.sets(), config.data.shuffle, config.seed);
  const RunDataReport report = [&] {
    const Progress shown("looking at the data");
    return describe_data(config, train, eval ? &*eval : nullptr, order, *tokenizer);
  }();
  print_report(report, options.json);
  if (options.config.data.bad_rows == BadRows::error) refuse_malformed(report);
  check_limits(report, config.data);
}

const InLibrary data_in_library(+[](DataOptions& options) {
  translate_torch_errors(
      "Free memory on this machine, or read fewer rows (data.max_samples). The weights are not loaded here.",
      [&] { run_data(options); });
});

}  // namespace
}  // namespace trainer
