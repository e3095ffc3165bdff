#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <ctime>
#include <fstream>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <utility>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"
#include "trainer/config/load.h"

#include "base/foreign_errors.h"
#include "formats/json_file.h"
#include "formats/run_status.h"
#include "report/metrics_file.h"
#include "report/report.h"
#include "report/thin_curve.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kRunningSeconds = 180;

Json read_json(const fs::path& path, Json& problems) {
  std::error_code error;
  if (!fs::exists(path, error)) return nullptr;
  try {
    return read_ordered_json_object(path);
  } catch (const std::exception& e) {
    problems.push_back(concat(path.filename().string(), " cannot be read: ", printable(own_words(e))));
    return nullptr;
  }
}

// Every key with its value, and whether that is not the default.
Json read_config(const fs::path& path, Json& problems) {
  std::error_code error;
  if (!fs::exists(path, error)) return nullptr;
  try {
    const Config config = load_config(path, {});
    const std::vector<std::string> changed = changed_keys(config);
    Json keys = Json::array();
    for (const std::string& name : key_names())
      keys.push_back({name, value_text(config, name), std::ranges::find(changed, name) != changed.end()});
    return keys;
  } catch (const std::exception& e) {  // written by another version
    problems.push_back(concat("config.yaml cannot be read: ", shortened(printable(own_words(e)), 400)));
    return nullptr;
  }
}

// Seconds since 1970; 0 if the file is not there.
int64_t time_of(const fs::path& path) {
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  if (error) return 0;
  const auto system = std::chrono::file_clock::to_sys(time);
  return std::chrono::duration_cast<std::chrono::seconds>(system.time_since_epoch()).count();
}

// Fills in the run's state, and why it ended; for a run of an earlier version, its last row decides.
void fill_state(Json& run, const fs::path& directory, ReportedState state) {
  const bool is_finished = run["finished"].get<bool>();
  if (is_finished || state != ReportedState::unknown) {
    run["state"] = is_finished ? "finished" : state == ReportedState::running ? "running" : "stopped";
    return;
  }
  const auto now = static_cast<double>(std::time(nullptr));
  const RunStatus status = read_run_status(directory, now);
  run["state"] = name_of(status.state);
  if (!status.message.empty()) run["message"] = status.message;
  if (status.state == RunPhase::unknown)
    run["state"] = now - run["updated"].get<double>() < kRunningSeconds ? "running" : "not finished";
}

}  // namespace

// What is read of a file, or of a folder, and again only when it has changed.
struct RunReader::Part {
  std::string seen;  // as the file was; "": it has not been read
  Json value, problems = Json::array();

  template <class Read>
  void refresh(const fs::path& path, const Read& read) {
    const std::string now = stamp_of(path);
    if (now == seen) return;
    problems = Json::array();
    value = read(path, problems);
    seen = now;
  }
};

struct RunReader::Parts {
  MetricsFile metrics;
  Part environment, data, config, predictions;
};

std::string stamp_of(const fs::path& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return "none";
  return concat(facts.st_mtim.tv_sec, ".", facts.st_mtim.tv_nsec, ".", facts.st_size, ".", facts.st_ino);
}

RunReader::RunReader(fs::path directory)
    : directory_(std::move(directory)), parts_(std::make_unique<Parts>()) {}
RunReader::~RunReader() = default;

Json RunReader::read(ReportedState state, bool may_lack_metrics) {
  const fs::path metrics_file = directory_ / "metrics.jsonl";
  Json run{{"path", directory_.string()}};
  Json problems = Json::array();
  std::error_code error;
  if (!may_lack_metrics || fs::exists(metrics_file, error)) parts_->metrics.read(metrics_file, problems);
  parts_->metrics.fill(run);
  run["updated"] = time_of(metrics_file);
  fill_state(run, directory_, state);
  const auto take = [&](const char* name, Part& part, const char* file, const auto& read) {
    part.refresh(directory_ / file, read);
    run[name] = part.value;
    for (const Json& problem : part.problems) problems.push_back(problem);
  };
  take("environment", parts_->environment, "environment.json", read_json);
  take("data", parts_->data, "data_report.json", read_json);
  take("config", parts_->config, "config.yaml", read_config);
  take("predictions", parts_->predictions, "predictions",
       [&](const fs::path&, Json&) { return read_predictions(directory_); });
  run["problems"] = std::move(problems);
  return run;
}

Json read_run(const fs::path& directory, ReportedState state) { return RunReader(directory).read(state); }

namespace {

constexpr size_t kMostSteps = 12, kMostSamples = 12, kMostBytes = 2000;

// The steps of OUT/predictions/step-N.jsonl, in order.
std::vector<int64_t> steps_in(const fs::path& folder) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (auto at = fs::directory_iterator(folder, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with("step-") || !name.ends_with(".jsonl")) continue;
    int64_t step = 0;
    const char* const end = name.data() + name.size() - 6;
    if (std::from_chars(name.data() + 5, end, step).ptr == end) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

// At most `count` of the items, spread evenly, the first and the last among them.
template <class Item>
std::vector<Item> spread(const std::vector<Item>& items, size_t count) {
  if (items.size() <= count) return items;
  std::vector<Item> some;
  for (size_t i = 0; i < count; i++) some.push_back(items[i * (items.size() - 1) / (count - 1)]);
  return some;
}

std::vector<Json> rows_of(const fs::path& path) {
  std::vector<Json> rows;
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return rows;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (auto row = parse_row(line)) rows.push_back(std::move(*row));
  }
  return rows;
}

bool is_same_sample(const Json& row, const Json& sample) {
  return text_of(row, "origin") == text_of(sample, "origin") &&
         shortened(text_of(row, "input"), kMostBytes) == text_of(sample, "input");
}

}  // namespace

std::string shortened(const std::string& text, size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80)
    bytes--;  // not in a character
  return text.substr(0, bytes) + "…";
}

Json read_predictions(const fs::path& directory) {
  const fs::path folder = directory / "predictions";
  const std::vector<int64_t> steps = spread(steps_in(folder), kMostSteps);
  if (steps.empty()) return nullptr;
  const auto file = [&](int64_t step) { return folder / ("step-" + std::to_string(step) + ".jsonl"); };
  Json samples = Json::array();
  for (const Json& row : spread(rows_of(file(steps.back())), kMostSamples)) {
    Json sample = Json::object();
    for (const char* key : {"origin", "input", "target"})
      sample[key] = shortened(text_of(row, key), kMostBytes);
    sample["answers"] = Json::array();
    samples.push_back(std::move(sample));
  }
  for (const int64_t step : steps) {
    const std::vector<Json> rows = rows_of(file(step));
    for (Json& sample : samples) {
      const auto row = std::ranges::find_if(rows, [&](const Json& r) { return is_same_sample(r, sample); });
      sample["answers"].push_back(
          row == rows.end() ? Json() : Json(shortened(text_of(*row, "prediction"), kMostBytes)));
    }
  }
  return {{"steps", steps}, {"samples", std::move(samples)}};
}

}  // namespace trainer
