#include "run/describe_data.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/data/batching.h"
#include "trainer/data/sample_view.h"
#include "trainer/training/evaluate.h"

#include "data/measure.h"

namespace trainer {
namespace {

void write_rows(const Dataset& data, std::ostream& out) {
  using Json = nlohmann::ordered_json;
  data.for_each_skipped_row([&](const SkippedRow& row) {
    const Json json{{"file", row.file}, {"line", row.line}, {"problem", row.problem}, {"row", row.beginning}};
    out << json.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
  });
}

// A label is no token: its name stands where a target would.
SampleView view_of_scored(const Dataset& train, int64_t index, int64_t side, const Tokenizer& tokenizer) {
  Sample sample = train.sample(index, side);
  sample.labels.assign(sample.input_ids.size(), kIgnore);
  sample.weights.clear();
  SampleView view = view_of(sample, /*encoder_decoder=*/false, train.origin(index), tokenizer);
  view.supervised_tokens = 1;
  if (train.sides() == 1) view.target.push_back({train.texts(index).target, true, 1.0f});
  return view;
}

}  // namespace

RunDataReport describe_data(const Config& config, const Dataset& train, const Dataset* eval,
                            const SampleOrder& order, const Tokenizer& tokenizer) {
  constexpr int64_t kSamplesShown = 3;
  RunDataReport report;
  report.train = train.report();
  if (eval != nullptr) report.eval = eval->report();
  const bool encoder_decoder = train.encoder_decoder();
  report.effective_batch_size = config.effective_batch_size();
  report.steps_per_epoch = steps_per_epoch(order.epoch_size(), report.effective_batch_size);
  for (const SampleSet& set : train.sets()) {
    const double times = static_cast<double>(set.in_epoch()) / static_cast<double>(set.samples);
    report.epoch_tokens += std::llround(times * static_cast<double>(set.tokens));
    report.epoch_supervised_tokens += std::llround(times * static_cast<double>(set.supervised_tokens));
  }
  // With auto, the memory plan may choose a micro-batch as large as the whole step.
  const int64_t batch_size = config.training.batch_size.is_automatic() ? report.effective_batch_size
                                                                       : int64_t{config.training.batch_size};
  report.padding = measure_padding(train, order, report.effective_batch_size,
                                   cut_limits(config, encoder_decoder, batch_size));
  count_repeats(train, eval, report);
  for (int64_t i = 0; i < std::min(kSamplesShown, order.epoch_size()); i++) {
    const int64_t index = order.index_at(i);
    for (int64_t side = 0; side < train.sides(); side++)
      report.samples.push_back(
          config.objective.row_score() == RowScore::none
              ? view_of(train.sample(index, side), encoder_decoder, train.origin(index), tokenizer)
              : view_of_scored(train, index, side, tokenizer));
  }
  return report;
}

void keep_data_report(const RunDataReport& report, const std::filesystem::path& directory) {
  try {
    write_atomically(directory / "data_report.json", to_json_text(report));
  } catch (const FormatError& e) {
    log::warning(concat("the data report is not saved: ", e.what()));
  }
}

void keep_skipped_rows(const Dataset& train, const Dataset* eval, const std::filesystem::path& output_dir) {
  const std::filesystem::path file = output_dir / "skipped_rows.jsonl";
  const int64_t rows =
      train.report().malformed.count + (eval != nullptr ? eval->report().malformed.count : 0);
  try {
    if (rows == 0) {
      delete_entry(file);
      return;
    }
    write_atomically(file, [&](std::ostream& out) {
      write_rows(train, out);
      if (eval != nullptr) write_rows(*eval, out);
    });
    log::warning(concat("skipped ", grouped(rows), rows == 1 ? " row" : " rows",
                        "; their places and reasons: ", file.string()));
  } catch (const FormatError& e) {
    log::warning(concat("the rows that are skipped are not listed: ", e.what()));
  }
}

}  // namespace trainer
