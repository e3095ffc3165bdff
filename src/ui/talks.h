// Conversations with the result of a run, and with its base model beside it. A model is in memory from the
// first message on, until the conversation is closed or nothing was said for ten minutes.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "ui/http/http_job.h"
#include "ui/live_runs.h"
#include "ui/own_program.h"

namespace trainer::ui {

class Talks {
 public:
  Talks(RunIndex& index, LiveRuns& live);
  ~Talks();
  Talks(const Talks&) = delete;
  Talks& operator=(const Talks&) = delete;

  // asked: {"run": ID, "base": true, "device": "auto"|"cpu"|"cuda", "temperature": 0.7, "max_new_tokens":
  // 256}; the last two may be missing. Returns {"talk": KEY, "sides": [{"key": "result", "model",
  // "converses"}], "note"}. Loads nothing yet. Throws ConfigError in plain words when there is nothing to
  // chat with, and OutOfMemoryError when the model would not fit beside a run that trains on this machine.
  nlohmann::ordered_json open(const nlohmann::ordered_json& asked);

  // asked: {"talk": KEY, "side": "result"|"base", "messages": [...]}. Returns an answer as lines of JSON:
  // {"piece"}, then {"answer"} or {"error"}. When nobody listens any more, the answer ends.
  HttpResponse say(const nlohmann::ordered_json& asked);

  void close(const std::string& key);
  // Ends all, so that no answer is waited for.
  void close_all();

 private:
  struct Side {
    std::string key, model;
    bool converses = false;
    std::vector<std::string> arguments;
    std::timed_mutex answers;  // one at a time
    std::mutex starts;         // guards `program`
    std::shared_ptr<OwnProgram> program;

    std::shared_ptr<OwnProgram> opened();
    void end(int signal);
    void answer(const nlohmann::ordered_json& messages, const HttpWrite& write);
  };
  struct Talk {
    std::map<std::string, std::shared_ptr<Side>> sides;
    std::atomic<double> last_word = 0;
  };

  void end_idle(const std::stop_token& stop);

  RunIndex& index_;
  LiveRuns& live_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Talk>> talks_;
  std::jthread reaper_;
};

}  // namespace trainer::ui
