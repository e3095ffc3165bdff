// Helper processes that feed metrics.jsonl to Weights & Biases, MLflow or Trackio while a run goes on
// (observe.report_to, docs/observing.md).
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "trainer/base/metrics.h"

namespace trainer {

// Returns the command that installs the package of a service ("wandb") for the Python that a helper would run
// in; "" if it is there.
std::string how_to_install_reporter(const std::string& service);

// Each helper is scripts/sync_metrics in a Python of its own. It reads files, tries again where a service
// does not answer, and sees the end of the run by the end of its standard input, also if the run is killed.
// No function but the destructor waits for it.
class Reporters : public MetricSink {
 public:
  Reporters();
  // The run is over. A helper gets some seconds for what is left; one that needs longer goes on by itself.
  ~Reporters() override;
  Reporters(const Reporters&) = delete;
  Reporters& operator=(const Reporters&) = delete;

  // Starts a helper for each service ("wandb"). `directory` has a metrics.jsonl. A service whose package is
  // not installed is left out, with a warning that says how to install it.
  void begin(const std::vector<std::string>& services, const std::filesystem::path& directory);

  // Logs a warning for a helper that has given up; the run goes on.
  void write(const MetricRow& row) override;

 private:
  struct Helper;
  std::vector<std::unique_ptr<Helper>> helpers_;
};

}  // namespace trainer
