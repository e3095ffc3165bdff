// A run's output directory: created, locked against a second run, with log, metrics and configuration in it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "trainer/base/metrics.h"
#include "trainer/config/config.h"

namespace trainer {

class Run {
 public:
  // Creates config.output_dir, locks it (a dead process holds no lock), refuses one with another run's results unless
  // config.overwrite_output_dir, writes config.yaml and starts log.txt and metrics.jsonl. Throws FormatError: in use (by
  // which process), holds results, not writable; then nothing was written.
  static Run open(const Config& config);
  Run(Run&&) noexcept;
  ~Run();

  const std::filesystem::path& directory() const;

  // Appends a row to metrics.jsonl (at full precision) and, for kinds train, eval and save, shows it on the console.
  void write(const MetricRow& row);

 private:
  struct State;
  explicit Run(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace trainer
