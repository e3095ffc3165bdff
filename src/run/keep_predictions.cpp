#include "run/keep_predictions.h"

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

namespace trainer {

void keep_predictions(const Predictions& predictions, const std::filesystem::path& output_dir, int64_t step,
                      int64_t show) {
  const std::filesystem::path file = output_dir / "predictions" / concat("step-", step, ".jsonl");
  for (const std::string& line : predictions.lines(show)) log::info(line);
  try {
    make_directories(file.parent_path());
    predictions.write(file);
    log::info(concat("all ", grouped(std::ssize(predictions.rows)), " answers: ", file.string()));
  } catch (const FormatError& e) {
    log::warning(concat("predictions are not written: ", e.what()));
  }
}

}  // namespace trainer
