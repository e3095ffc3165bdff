// Where log lines become text on stderr.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>

#include <spdlog/sinks/base_sink.h>

namespace trainer {

// "HH:MM:SS I message". On a terminal, broken between words, and above the live lines.
class StderrSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  double seconds_of_silence() const;

  // What stands in front of each message; "" if nothing. Set it before there are other threads.
  void set_speaker(const std::string& speaker) { speaker_ = speaker; }
  const std::string& speaker() const { return speaker_; }

  // Shows what `before` showed.
  void take_over(const StderrSink& before) {
    set_level(before.level());
    speaker_ = before.speaker_;
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}

 private:
  std::string speaker_;
  std::atomic<std::chrono::steady_clock::time_point> last_{std::chrono::steady_clock::now()};
};

}  // namespace trainer
