// How far a download is: one line that is rewritten on a terminal, else a line every few seconds.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace trainer::hub {

class Progress {
 public:
  // `total`: bytes; 0: unknown.
  Progress(std::string what, int64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // From any thread. Bytes that have to be fetched again are negative; those that were there before are not
  // `new`.
  void add(int64_t bytes) { done_ += bytes; }
  void add_present(int64_t bytes) {
    done_ += bytes;
    present_ += bytes;
  }

 private:
  void show_now_and_then(std::stop_token stop);
  std::string line(double seconds) const;

  std::string what_;
  int64_t total_;
  std::atomic<int64_t> done_ = 0, present_ = 0;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;
};

}  // namespace trainer::hub
