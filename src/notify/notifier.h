// Tells a chat channel, a server or a program of the user's what happens in a run (section notify of the
// configuration, docs/observing.md).
#pragma once

#include <cstdint>
#include <exception>
#include <memory>

#include "trainer/base/metrics.h"
#include "trainer/config/config.h"

#include "observe/time_left.h"

namespace trainer {

// It gets the rows of the run, and the warnings of the log. No function waits for a server or a program,
// except finished() and failed(), which wait for some seconds. At most one whose configuration asks for
// messages can live at a time; others do nothing.
class Notifier : public MetricSink {
 public:
  // Throws ConfigError when notify.webhook gives no address.
  explicit Notifier(const Config& config);
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;
  ~Notifier() override;

  // Model and data are loaded. `first_step`: the steps that earlier starts have made.
  void begin(int64_t first_step, const RunOutlook& outlook);

  void write(const MetricRow& row) override;
  void write_best(const MetricRow& evaluation) override;

  // The run is complete, or there was nothing to do.
  void finished();
  // The run ended with this exception: an error, or a stop after which it can resume.
  void failed(const std::exception_ptr& error);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trainer
