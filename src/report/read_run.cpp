#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"
#include "trainer/config/load.h"

#include "base/foreign_errors.h"
#include "base/not_text.h"
#include "formats/json_file.h"
#include "formats/run_status.h"
#include "report/report.h"
#include "report/thin_curve.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t kMostPoints = 3000;  // more than a screen has pixels
constexpr size_t kMostRows = 2000;    // for evaluations, and for each other kind
constexpr int64_t kRunningSeconds = 180;

// Collects the rows of metrics.jsonl.
class Metrics {
 public:
  void add(const Json& row) {
    const std::string kind = text_of(row, "kind");
    if (kind == "train") {
      add_step(row);
    } else if (kind == "eval") {
      seconds_ += number_of(row, "eval_seconds");
      keep(evaluations_, row);
    } else if (kind == "recovery") {
      keep(recoveries_, row);
    } else if (kind == "save" || kind == "save_failed") {
      seconds_ += number_of(row, "seconds");
      const fs::path path = text_of(row, "path");
      is_finished_ = kind == "save" && !path.filename().string().starts_with("checkpoint-");
      keep(saves_, row);
    } else if (kind == "memory") {
      plan_ = row;
    } else if (kind == "memory_growth") {
      keep(growth_, row);
    }
  }

  void fill(Json& run) const {
    run["step"] = step_;
    run["finished"] = is_finished_;
    run["train"] = curve_.to_json();
    run["last"] = last_;
    run["evaluations"] = evaluations_;
    run["recoveries"] = recoveries_;
    run["saves"] = saves_;
    run["skipped"] = skipped_;
    run["spikes"] = spikes_;
    run["growth"] = growth_;
    run["memory_plan"] = plan_;
  }

 private:
  void add_step(const Json& row) {
    if (row.contains("step")) step_ = count_of(row, "step");
    seconds_ += number_of(row, "step_seconds");
    tokens_ += number_of(row, "tokens");
    is_finished_ = false;
    curve_.add(row, seconds_, tokens_);
    last_ = {
        {"seconds", rounded(seconds_)}, {"tokens", tokens_}, {"epoch", rounded(number_of(row, "epoch"))}};
    if (row.contains("skipped") && skipped_.size() < kMostRows) skipped_.push_back(step_);
    if (row.contains("spike") && spikes_.size() < kMostRows) spikes_.push_back(step_);
  }

  // If there are very many rows, the first ones and the last one stay.
  void keep(Json& rows, Json row) {
    row.erase("kind");
    for (auto& [key, value] : row.items()) {
      if (value.is_number_float()) value = rounded(value.get<double>());
      if (value.is_string()) value = shortened(value.get<std::string>(), 600);
    }
    row["at_seconds"] = rounded(seconds_);
    row["at_tokens"] = tokens_;
    if (rows.size() < kMostRows) {
      rows.push_back(std::move(row));
    } else {
      rows.back() = std::move(row);
    }
  }

  int64_t step_ = 0;
  double seconds_ = 0, tokens_ = 0;
  bool is_finished_ = false;
  ThinCurve curve_{kMostPoints};
  Json last_, plan_;
  Json evaluations_ = Json::array(), recoveries_ = Json::array(), saves_ = Json::array(),
       skipped_ = Json::array(), spikes_ = Json::array(), growth_ = Json::array();
};

// Half-written lines, and lines that another program has added, are passed over.
Metrics read_metrics(const fs::path& path, Json& problems) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    throw FormatError(concat(path.string(), ": ", fs::exists(path, error) ? "is no file" : "does not exist",
                             "; give the output_dir of a run"));
  }
  std::ifstream in(path);
  if (!in) throw FormatError(concat(path.string(), ": cannot be read"));
  Metrics metrics;
  size_t lines = 0, rows = 0;
  std::string other;  // what it is instead, if its first line is no row
  for (std::string line; std::getline(in, line); lines++) {
    const auto row = parse_row(line);
    if (lines == 0 && !row) other = other_kind(line);
    if (!row) continue;
    metrics.add(*row);
    rows++;
  }
  if (lines > 0 && rows == 0)
    problems.push_back(
        concat(path.filename().string(), ": ",
               other.empty() ? concat("none of its ", lines, " lines is a row of a run") : other));
  return metrics;
}

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

Json read_run(const fs::path& directory, ReportedState state) {
  const fs::path metrics_file = directory / "metrics.jsonl";
  Json run{{"path", directory.string()}};
  Json problems = Json::array();
  read_metrics(metrics_file, problems).fill(run);
  run["updated"] = time_of(metrics_file);
  fill_state(run, directory, state);
  run["environment"] = read_json(directory / "environment.json", problems);
  run["data"] = read_json(directory / "data_report.json", problems);
  run["config"] = read_config(directory / "config.yaml", problems);
  run["predictions"] = read_predictions(directory);
  run["problems"] = std::move(problems);
  return run;
}

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
