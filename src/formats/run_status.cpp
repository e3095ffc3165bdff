#include "formats/run_status.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/checkpoint.h"
#include "trainer/formats/run_position.h"

#include "formats/json_file.h"
#include "formats/optimizer_state.h"
#include "formats/trainer_state.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kMetrics = "metrics.jsonl";
constexpr double kSilence = 6 * kStatusInterval;  // seconds, after which a run elsewhere is not known to run
constexpr int kDepth = 4;

constexpr std::array<std::pair<RunPhase, const char*>, 8> kNames{{{RunPhase::starting, "starting"},
                                                                  {RunPhase::running, "running"},
                                                                  {RunPhase::finished, "finished"},
                                                                  {RunPhase::stopped, "stopped"},
                                                                  {RunPhase::failed, "failed"},
                                                                  {RunPhase::killed, "killed"},
                                                                  {RunPhase::silent, "silent"},
                                                                  {RunPhase::unknown, "unknown"}}};

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// A damaged file may have any number: what no run has is passed over, as it does not fit into what is shown.
template <class T>
std::optional<T> number_in(const Json& value) {
  constexpr double kMost = 1e15;
  if (!value.is_number()) return std::nullopt;
  const auto number = value.get<double>();
  return number >= -kMost && number <= kMost ? std::optional(value.get<T>()) : std::nullopt;
}

// Takes a value if it is there and has the type.
template <class T>
void take(const Json& from, const char* key, T& value) {
  const auto found = from.find(key);
  if (found == from.end()) return;
  if constexpr (std::is_same_v<T, std::string>) {
    if (found->is_string()) value = found->get<std::string>();
  } else {
    value = number_in<T>(*found).value_or(value);
  }
}

template <class T>
void take(const Json& from, const char* key, std::optional<T>& value) {
  const auto found = from.find(key);
  if (found == from.end()) return;
  if (const auto number = number_in<T>(*found)) value = number;
}

template <class T>
void put(Json& to, const char* key, const std::optional<T>& value) {
  if (value) to[key] = *value;
}

void put(Json& to, const char* key, const std::string& value) {
  if (!value.empty()) to[key] = value;
}

// "" when it is not there or cannot be read.
std::string text_of(const fs::path& path, int64_t last_bytes) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return "";  // reading a pipe may never end
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return "";
  const int64_t size = in.tellg();
  const int64_t first = std::max<int64_t>(0, size - last_bytes);
  in.seekg(first);
  std::ostringstream text;
  text << in.rdbuf();
  std::string found = text.str();
  if (first > 0) found.erase(0, std::min(found.size(), found.find('\n') + 1));  // the rest of a line
  return found;
}

RunStatus from_json(const Json& json) {
  RunStatus status;
  std::string state;
  take(json, "state", state);
  const auto known =
      std::ranges::find(kNames, state, [](const auto& name) { return std::string(name.second); });
  if (known != kNames.end()) status.state = known->first;
  take(json, "model", status.model);
  take(json, "step", status.step);
  take(json, "total_steps", status.total_steps);
  take(json, "epoch", status.epoch);
  take(json, "loss", status.loss);
  take(json, "learning_rate", status.learning_rate);
  take(json, "tokens_per_second", status.tokens_per_second);
  take(json, "memory_peak", status.memory_peak);
  take(json, "memory_limit", status.memory_limit);
  take(json, "evaluation_step", status.evaluation_step);
  take(json, "eval_loss", status.eval_loss);
  take(json, "saved_step", status.saved_step);
  take(json, "seconds_left", status.seconds_left);
  take(json, "work", status.work);
  take(json, "message", status.message);
  take(json, "exit_code", status.exit_code);
  take(json, "started", status.started);
  take(json, "updated", status.updated);
  take(json, "host", status.process.host);
  take(json, "pid", status.process.pid);
  take(json, "boot", status.process.boot);
  take(json, "pid_namespace", status.process.pid_namespace);
  take(json, "process_start", status.process.start);
  return status;
}

std::optional<RunStatus> stored(const fs::path& directory) {
  constexpr int64_t kMost = 1 << 20;
  const std::optional<Json> json = parse_row(text_of(directory / kStatusFile, kMost));
  return json ? std::optional(from_json(*json)) : std::nullopt;
}

// Rows that are newer than the status, or, without one, all that a look at the end gives.
void add_last_rows(RunStatus& status, const fs::path& metrics) {
  constexpr int64_t kLast = 1 << 20;
  std::istringstream lines(text_of(metrics, kLast));
  for (std::string line; std::getline(lines, line);) {
    const std::optional<Json> row = parse_row(line);
    int64_t step = 0;
    if (row) take(*row, "step", step);
    if (row && step >= status.step) add_row(status, *row);
  }
}

// A run that loads has only a lock file, "process 1234 on HOST".
std::optional<ProcessIdentity> holder_of_lock(const fs::path& directory) {
  std::istringstream words(text_of(directory / ".lock", 1024));
  std::string process, on;
  ProcessIdentity holder;
  words >> process >> holder.pid >> on >> holder.host;
  if (!words || process != "process" || on != "on") return std::nullopt;
  return holder;
}

// A finished run has its position at its root, after the last step; one that runs has it before the first.
bool has_result(const fs::path& directory) {
  try {
    return is_there(directory / kTrainerStateFile) && read_position(directory).step > 0;
  } catch (const FormatError&) {
    return false;
  }
}

// Returns the real state of a run whose status.json says that it runs.
RunPhase state_of_running(const RunStatus& status, double now) {
  switch (life_of(status.process)) {
    case Life::alive:
      return RunPhase::running;
    case Life::dead:
      return RunPhase::killed;
    case Life::elsewhere:
      break;
  }
  return status.updated && now - *status.updated <= kSilence ? RunPhase::running : RunPhase::silent;
}

void find_runs(const fs::path& directory, int depth, std::vector<fs::path>& found) {
  if (is_run(directory)) {
    found.push_back(directory);
    return;
  }
  if (depth == 0) return;
  std::error_code error;
  for (auto at = fs::directory_iterator(directory, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    std::error_code ignored;
    const bool is_folder = at->is_directory(ignored) && !at->is_symlink(ignored);
    if (is_folder && !at->path().filename().string().starts_with('.'))
      find_runs(at->path(), depth - 1, found);
  }
}

}  // namespace

std::string name_of(RunPhase state) {
  return std::ranges::find(kNames, state, &std::pair<RunPhase, const char*>::first)->second;
}

void add_row(RunStatus& status, const Json& row) {
  std::string kind;
  take(row, "kind", kind);
  if (kind == "train") {
    take(row, "step", status.step);
    take(row, "epoch", status.epoch);
    take(row, "loss", status.loss);
    take(row, "learning_rate", status.learning_rate);
    take(row, "tokens_per_second", status.tokens_per_second);
    take(row, "memory_peak", status.memory_peak);
    take(row, "memory_limit", status.memory_limit);
  } else if (kind == "eval") {
    take(row, "step", status.evaluation_step);
    take(row, "eval_loss", status.eval_loss);
  } else if (kind == "save") {
    take(row, "step", status.saved_step);
  }
}

Json to_json(const RunStatus& status) {
  Json json{{"state", name_of(status.state)}};
  put(json, "model", status.model);
  json["step"] = status.step;
  if (status.total_steps > 0) json["total_steps"] = status.total_steps;
  put(json, "epoch", status.epoch);
  put(json, "loss", status.loss);
  put(json, "learning_rate", status.learning_rate);
  put(json, "tokens_per_second", status.tokens_per_second);
  put(json, "memory_peak", status.memory_peak);
  put(json, "memory_limit", status.memory_limit);
  put(json, "evaluation_step", status.evaluation_step);
  put(json, "eval_loss", status.eval_loss);
  put(json, "saved_step", status.saved_step);
  put(json, "seconds_left", status.seconds_left);
  put(json, "work", status.work);
  put(json, "message", status.message);
  put(json, "exit_code", status.exit_code);
  put(json, "started", status.started);
  put(json, "updated", status.updated);
  if (status.process.pid == 0) return json;
  put(json, "host", status.process.host);
  json["pid"] = status.process.pid;
  put(json, "boot", status.process.boot);
  put(json, "pid_namespace", status.process.pid_namespace);
  json["process_start"] = status.process.start;
  return json;
}

bool is_run(const fs::path& directory) {
  for (const char* name : {kStatusFile, kMetrics}) {
    if (is_there(directory / name)) return true;
  }
  return is_there(directory / kPositionFile) && is_there(directory / "config.yaml");
}

RunStatus read_run_status(const fs::path& directory, double now) {
  const std::optional<ProcessIdentity> holder = holder_of_lock(directory);
  std::optional<RunStatus> known = stored(directory);
  const bool other_holds = holder && (!known || known->process.pid != holder->pid);
  if (!is_run(directory) && !holder)
    throw FormatError(concat(directory.string(),
                             ": is not the output directory of a run (it has neither status.json nor "
                             "metrics.jsonl); `trainer runs DIR` lists the runs below a directory"));
  RunStatus status = known.value_or(RunStatus{});
  add_last_rows(status, directory / kMetrics);
  if (!known && has_result(directory)) status.state = RunPhase::finished;
  if (status.state == RunPhase::running) status.state = state_of_running(status, now);
  if (other_holds && life_of(*holder) == Life::alive) {
    status.state = RunPhase::starting;
    status.process = *holder;
  }
  const bool goes_on = status.state == RunPhase::running || status.state == RunPhase::silent;
  if (!goes_on) {
    status.seconds_left.reset();
    status.work.clear();
  }
  return status;
}

std::optional<int64_t> step_to_go_on_from(const fs::path& directory) {
  std::optional<int64_t> newest;
  std::error_code ignored;
  for (const int64_t step : checkpoint_steps(directory)) {
    const fs::path checkpoint = checkpoint_path(directory, step);
    if (fs::exists(checkpoint / kOptimizerFile, ignored) && fs::exists(checkpoint / kPositionFile, ignored))
      newest = step;
  }
  return newest;
}

std::vector<fs::path> find_runs(const fs::path& directory) {
  std::vector<fs::path> found;
  find_runs(directory, kDepth, found);
  std::ranges::sort(found);
  return found;
}

}  // namespace trainer
