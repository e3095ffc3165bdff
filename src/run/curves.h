// The output for people who watch a run: event files for TensorBoard, and the run's page.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <future>
#include <optional>

#include "trainer/base/metrics.h"
#include "trainer/config/config.h"
#include "trainer/training/predictions.h"

#include "observe/tensorboard_sink.h"
#include "report/report.h"

namespace trainer {

// If something cannot be written, a warning is logged once and the run continues.
class Curves {
 public:
  // directory: of the run. first_step: steps that were done before this start.
  Curves(const Config& config, std::filesystem::path directory, int64_t first_step);
  Curves(const Curves&) = delete;
  Curves& operator=(const Curves&) = delete;
  // If the run ended without finish(), the page says so.
  ~Curves();

  // To be called when the row is in metrics.jsonl. The page is written on another thread: when it is old
  // enough, and soon after an evaluation.
  void add(const MetricRow& row);
  void add_predictions(const Predictions& predictions, int64_t step);

  // Writes the page for the last time.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;

  bool is_page_due() const;
  void write_in_background();
  void write_page(ReportedState state);
  void take_outcome(const std::string& problem);

  std::filesystem::path directory_;
  std::optional<TensorboardSink> tensorboard_;
  int64_t shown_;     // answers for TensorBoard
  Seconds interval_;  // 0: no page
  Clock::time_point last_written_ = Clock::now();
  bool is_first_ = true, has_evaluation_ = false, is_finished_ = false, warned_ = false;
  Seconds cost_{0};  // seconds that the last page took
  Clock::time_point began_;
  std::future<std::string> pending_;  // why the page could not be written; "": it was
};

}  // namespace trainer
