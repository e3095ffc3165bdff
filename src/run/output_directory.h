// The output directory of a run, with its log, metrics and configuration. It is created, and locked against a
// second run. Rows that are written to it are also shown on the console and sent to other listeners.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "trainer/base/error.h"
#include "trainer/base/metrics.h"
#include "trainer/config/config.h"
#include "trainer/formats/run_position.h"
#include "trainer/training/predictions.h"

#include "formats/run_status.h"
#include "observe/console.h"

namespace trainer {

// output_dir is in use, not writable, or holds what this run must not touch.
struct OutputDirectoryError : Error {
  explicit OutputDirectoryError(const std::string& message, ErrorCode family = ErrorCode::output_dir)
      : Error(ExitCode::files, message) {
    set_family(family);
  }
};

class OutputDirectory : public MetricSink {
 public:
  // Creates config.output_dir and locks it (a dead process holds no lock). A directory with results (a
  // training step in metrics.jsonl, weights, a checkpoint) is refused, unless config.overwrite_output_dir is
  // set, or config.resume allows the run to resume and a position to resume from exists. The caller checks
  // whether that position belongs to this run. Throws OutputDirectoryError when the directory is in use (it
  // names the process), holds results, is not writable, holds the model or adapter that the run starts from,
  // or is a place with another purpose: /, or the user's home, a directory of the system or the root of the
  // repository around the working directory, if something else is in it. A run that ends before begin()
  // leaves the directory as it was.
  static OutputDirectory open(const Config& config);
  // The same folder for a rank that shows and writes nothing: rank 0 does. All calls do nothing.
  static OutputDirectory of_other_rank(const Config& config);

  // To be called after model and data were checked. Writes config.yaml and trainer_position.json (`fixed` and
  // `began_from` of `start`), and starts log.txt and metrics.jsonl. With `keeps_results`, results of an
  // earlier start of the same run stay, with the first `metrics_bytes` of metrics.jsonl; otherwise they are
  // removed. Throws FormatError and OutputDirectoryError when something cannot be written or removed.
  void begin(const RunPosition& start = {}, bool keeps_results = false);

  OutputDirectory(OutputDirectory&&) noexcept;
  ~OutputDirectory() override;

  const std::filesystem::path& directory() const;

  // Returns whether an earlier run has left results in the directory.
  bool has_results() const;

  // Returns the size of metrics.jsonl, after everything in it has been synced to the disk.
  int64_t metrics_bytes();

  // Shows the start block. From here on the console and status.json say how far the run is, beginning at
  // `step`.
  void start(const StartBlock& block, const RunOutlook& outlook, int64_t step);
  // The end of what the console shows of the run's steps.
  void finish();
  // Writes to status.json how the run ended; message: why it stopped or failed. Does nothing before begin().
  void end(RunPhase phase, int exit_code, const std::string& message);

  // Adds a listener, which gets each row after the file and the console. It must outlive the run.
  void add_sink(MetricSink& sink);

  // Shows generated answers where the curves are.
  void show(const Predictions& predictions, int64_t step);

  // Writes the page of a run that has finished. Otherwise the destructor writes it.
  void finish_curves();

  // Appends a row to metrics.jsonl (at full precision) and, for kinds train and eval, shows it on the
  // console.
  void write(const MetricRow& row) override;
  void write_best(const MetricRow& evaluation) override;

 private:
  struct State;
  explicit OutputDirectory(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace trainer
