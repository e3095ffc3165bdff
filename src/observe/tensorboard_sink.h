// Event files for TensorBoard (docs/observing.md).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "trainer/base/files.h"
#include "trainer/base/metrics.h"

#include "formats/tensorboard_events.h"

namespace trainer {

// A start of a run writes one file. If something cannot be written (disk full), it is left out; the first
// time a warning is logged. The sink then tries a new file every minute. Nothing here throws FormatError.
class TensorboardSink : public MetricSink {
 public:
  // directory: is made if it is missing. In event files that are there already, the events of steps after
  // `last_step` are removed, because the run repeats these steps. `retry`: how long to wait after a failure.
  TensorboardSink(std::filesystem::path directory, int64_t last_step,
                  std::chrono::milliseconds retry = std::chrono::minutes(1));

  // Puts the configuration into the file, as text and for the HPARAMS tab (numbers, booleans, strings).
  void begin(const std::string& configuration, const nlohmann::ordered_json& hparams);

  // Writes rows of kind train and eval as scalars (train/loss, speed/..., memory/..., eval/...), of kind
  // recovery as text.
  void write(const MetricRow& row) override;
  // Writes Markdown.
  void write_text(const std::string& tag, const std::string& text, int64_t step);

 private:
  void forget_after(int64_t last_step);
  bool open();
  void append(const TensorboardEvent& event);
  void fail(const std::string& problem);

  std::filesystem::path directory_;
  int64_t last_step_;
  std::chrono::milliseconds retry_;
  std::string first_records_;  // records that each file of this start begins with
  std::optional<AppendedFile> file_;
  std::optional<std::chrono::steady_clock::time_point> failed_;
  bool warned_ = false;
};

}  // namespace trainer
