#include "observe/file_sinks.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <system_error>
#include <thread>

#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "base/memory_room.h"
#include "base/progress.h"
#include "base/special_files.h"

namespace trainer {
namespace {

// Returns the size of the complete lines within the first `bytes` of a file.
int64_t bytes_of_lines(const std::filesystem::path& path, int64_t bytes) {
  const auto file = MappedFile::open(path);
  const size_t end = file->text().substr(0, static_cast<size_t>(bytes)).rfind('\n');
  return end == std::string_view::npos ? 0 : static_cast<int64_t>(end) + 1;
}

}  // namespace

JsonlSink::JsonlSink(std::filesystem::path path) : path_(std::move(path)), file_(path_) {}

void JsonlSink::write(const MetricRow& row) {
  nlohmann::ordered_json line = {{"kind", row.kind}};
  line.update(row.values);
  const auto replace = nlohmann::ordered_json::error_handler_t::replace;  // a path need not be UTF-8
  try {
    file_.append(line.dump(-1, ' ', false, replace) + "\n");
  } catch (const FormatError& e) {
    if (rows_lost_++ == 0) {
      log::warning(concat("a row of metrics is lost: ", e.what(),
                          "; training continues, rows will be missing from the file"));
    }
  }
}

void JsonlSink::keep_first(int64_t bytes) {
  const int64_t there = file_.size();
  if (there < bytes)
    log::warning(concat("metrics.jsonl has ", grouped(there), " bytes, but it had ", grouped(bytes),
                        ": rows of earlier steps are missing"));
  try {
    const int64_t kept = bytes_of_lines(path_, bytes);
    if (there > kept) file_.truncate(kept);
  } catch (const FormatError& e) {
    log::warning(concat(e.what(), ": steps that are repeated have two rows"));
  }
}

int64_t JsonlSink::synced_bytes() {
  try {
    file_.sync();
  } catch (const FormatError& e) {
    log::warning(e.what());
  }
  return file_.size();
}

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
    require_room_for_threads(1, kStatusFile);
    state.thread = std::jthread([&state](const std::stop_token& stop) { state.repeat(stop); });
  } catch (const std::exception&) {
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
