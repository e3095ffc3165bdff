// A run's output directory: created, locked against a second run, with log, metrics and configuration in it.
// What is written to it is also shown on the console and sent to other listeners.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "trainer/base/error.h"
#include "trainer/base/metrics.h"
#include "trainer/config/config.h"
#include "trainer/formats/run_position.h"
#include "trainer/observe/console.h"

namespace trainer {

// output_dir is in use, not writable, or holds what this run must not touch.
struct OutputDirectoryError : Error {
  explicit OutputDirectoryError(const std::string& message) : Error(ExitCode::files, message) {}
};

class OutputDirectory : public MetricSink {
 public:
  // Makes config.output_dir and locks it (a dead process holds no lock). One with results (a training step in
  // metrics.jsonl, weights, a checkpoint) is refused unless config.overwrite_output_dir, or config.resume
  // allows a run to resume and there is a position to resume from: whether it is that of this run is
  // left to the caller. Throws OutputDirectoryError: in use (by which process), holds results, not writable,
  // holds the model or adapter that the run starts from. A run that ends before begin() leaves the directory
  // as it was.
  static OutputDirectory open(const Config& config);

  // To be called when nothing more can be wrong with model and data: writes config.yaml and
  // trainer_position.json (`fixed` and `began_from` of `start`) and starts log.txt and metrics.jsonl. Results
  // of an earlier start of the same run stay where `keeps_results`, with the first `metrics_bytes` of
  // metrics.jsonl; otherwise they are removed. Throws FormatError and OutputDirectoryError when something
  // cannot be written or removed.
  void begin(const RunPosition& start = {}, bool keeps_results = false);

  OutputDirectory(OutputDirectory&&) noexcept;
  ~OutputDirectory() override;

  const std::filesystem::path& directory() const;

  // Whether an earlier run has left results in it.
  bool has_results() const;

  // Of metrics.jsonl; what is in it so far is on the disk.
  int64_t metrics_bytes();

  // The start block, progress and the end are shown there.
  Console& console();

  // Another listener: gets each row after the file and the console. It must outlive the run.
  void add_sink(MetricSink& sink);

  // Appends a row to metrics.jsonl (at full precision) and, for kinds train and eval, shows it on the
  // console.
  void write(const MetricRow& row) override;

 private:
  struct State;
  explicit OutputDirectory(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace trainer
