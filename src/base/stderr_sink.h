// Where log lines become text on stderr.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>

#include <spdlog/sinks/base_sink.h>

namespace trainer {

// "HH:MM:SS I message". On a terminal, broken between words, and above the live lines.
class StderrSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  double seconds_of_silence() const;

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}

 private:
  std::atomic<std::chrono::steady_clock::time_point> last_{std::chrono::steady_clock::now()};
};

}  // namespace trainer
