#include "observe/status_file.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <system_error>
#include <thread>

#include "trainer/base/log.h"

#include "base/note_file.h"
#include "base/progress.h"

namespace trainer {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

struct StatusFile::State {
  std::mutex mutex;  // guards all but the thread
  std::filesystem::path path;
  RunStatus status;
  TimeLeft time_left;
  bool ended = false;
  std::condition_variable_any changed;
  std::jthread thread;  // destroyed first

  // The mutex must be held.
  void write() {
    status.updated = now();
    status.seconds_left.reset();
    if (const auto left = time_left.estimate(); left && !ended) status.seconds_left = left->seconds;
    status.work = ended ? "" : current_work();
    const auto replace = nlohmann::ordered_json::error_handler_t::replace;  // a path need not be UTF-8
    write_note(path, to_json(status).dump(1, ' ', false, replace) + "\n");
  }

  void repeat(const std::stop_token& stop) {
    std::unique_lock lock(mutex);
    while (!stop.stop_requested()) {
      changed.wait_for(lock, stop, std::chrono::duration<double>(kStatusInterval), [] { return false; });
      if (!stop.stop_requested() && !ended) write();
    }
  }
};

StatusFile::StatusFile(const std::filesystem::path& directory, const std::string& model)
    : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.path = directory / kStatusFile;
  state.status.state = RunPhase::running;
  state.status.model = model;
  state.status.started = now();
  state.status.process = own_identity();
  state.write();
  try {
    state.thread = std::jthread([&state](const std::stop_token& stop) { state.repeat(stop); });
  } catch (const std::system_error&) {
    log::debug("no thread could be started for status.json: it is written at the start and at the end only");
  }
}

StatusFile::~StatusFile() = default;

void StatusFile::start(const RunOutlook& outlook, int64_t step) {
  const std::lock_guard lock(state_->mutex);
  state_->time_left.set_outlook(outlook);
  state_->status.total_steps = outlook.total_steps;
  state_->status.step = step;
  state_->write();
}

void StatusFile::write(const MetricRow& row) {
  nlohmann::ordered_json values = row.values;
  values["kind"] = row.kind;
  const std::lock_guard lock(state_->mutex);
  state_->time_left.add(row);
  add_row(state_->status, values);
}

void StatusFile::end(RunPhase run_state, int64_t exit_code, const std::string& message) {
  const std::lock_guard lock(state_->mutex);
  state_->status.state = run_state;
  state_->status.exit_code = exit_code;
  state_->status.message = message;
  state_->ended = true;
  state_->write();
}

}  // namespace trainer
