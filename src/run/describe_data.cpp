#include "run/describe_data.h"

#include <algorithm>
#include <cmath>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/data/batching.h"
#include "trainer/data/sample_view.h"
#include "trainer/training/evaluate.h"

#include "data/measure.h"

namespace trainer {

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
    report.samples.push_back(view_of(train.sample(index), encoder_decoder, train.origin(index), tokenizer));
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

}  // namespace trainer
