// A run's output directory: created, locked against a second run, with log, metrics and configuration in it.
#pragma once

#include <filesystem>
#include <memory>

#include "trainer/base/metrics.h"
#include "trainer/config/config.h"
#include "trainer/observe/console.h"

namespace trainer {

class Run : public MetricSink {
 public:
  // Makes config.output_dir and locks it (a dead process holds no lock); refuses one with another run's
  // results (a training step in metrics.jsonl, weights, a checkpoint) unless config.overwrite_output_dir.
  // Throws FormatError: in use (by which process), holds results, not writable, holds the model or adapter
  // that the run starts from. A run that ends before begin() leaves the directory as it was.
  static Run open(const Config& config);

  // To be called when nothing more can be wrong with model and data: removes an earlier run's results, writes
  // config.yaml, starts log.txt and metrics.jsonl. Throws FormatError when they cannot be written.
  void begin();

  Run(Run&&) noexcept;
  ~Run() override;

  const std::filesystem::path& directory() const;

  // The start block, progress and the end are shown there.
  Console& console();

  // Another listener: gets each row after the file and the console. It must outlive the run.
  void add_sink(MetricSink& sink);

  // Appends a row to metrics.jsonl (at full precision) and, for kinds train, eval and save, shows it on the
  // console.
  void write(const MetricRow& row) override;

 private:
  struct State;
  explicit Run(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace trainer
