// OUT/status.json: what the run is doing, for `trainer status` and for people.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "trainer/base/metrics.h"

#include "formats/run_status.h"
#include "observe/time_left.h"

namespace trainer {

// Writes the file at once, then every kStatusInterval from a thread of its own, and at the end. A file that
// cannot be written (disk full) stays as it was; the run goes on.
class StatusFile : public MetricSink {
 public:
  StatusFile(const std::filesystem::path& directory, const std::string& model);
  ~StatusFile() override;
  StatusFile(const StatusFile&) = delete;
  StatusFile& operator=(const StatusFile&) = delete;

  // step: where the run begins.
  void start(const RunOutlook& outlook, int64_t step);
  void write(const MetricRow& row) override;
  // The last one of the run. message: why it stopped or failed.
  void end(RunPhase state, int64_t exit_code, const std::string& message);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trainer
