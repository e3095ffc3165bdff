// A run's output directory: created, locked against a second run, with log, metrics and configuration in it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "trainer/base/metrics.h"
#include "trainer/config/config.h"
#include "trainer/observe/console.h"

namespace trainer {

// How a run begins in its directory.
struct RunStart {
  // An earlier start of the same run has left results, which stay, and so much of metrics.jsonl. Absent: they
  // are removed.
  std::optional<int64_t> metrics_bytes;
  // What must not change between the starts of this run: kept in trainer_position.json (RunPosition::fixed).
  std::map<std::string, std::string> fixed;
  std::string began_from;  // RunPosition::began_from
};

class Run : public MetricSink {
 public:
  // Makes config.output_dir and locks it (a dead process holds no lock). One with results (a training step in
  // metrics.jsonl, weights, a checkpoint) is refused unless config.overwrite_output_dir, or config.resume
  // lets a run go on and there is a position that one could go on from: whether it is that of this run is
  // left to the caller. Throws FormatError: in use (by which process), holds results, not writable, holds the
  // model or adapter that the run starts from. A run that ends before begin() leaves the directory as it was.
  static Run open(const Config& config);

  // To be called when nothing more can be wrong with model and data: removes an earlier run's results where
  // they are not to stay, writes config.yaml and trainer_position.json, starts or goes on with log.txt and
  // metrics.jsonl. Throws FormatError when they cannot be written.
  void begin(const RunStart& start = {});

  Run(Run&&) noexcept;
  ~Run() override;

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
  explicit Run(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace trainer
