#include "report/metrics_file.h"

#include <algorithm>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/not_text.h"
#include "formats/json_file.h"
#include "report/report.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t kMostRows = 2000;  // for evaluations, and for each other kind
constexpr int64_t kRemembered = 256;

std::string bytes_before(std::ifstream& in, int64_t end) {
  std::string bytes(static_cast<size_t>(std::min(end, kRemembered)), '\0');
  in.clear();
  in.seekg(end - std::ssize(bytes));
  in.read(bytes.data(), std::ssize(bytes));
  bytes.resize(static_cast<size_t>(std::max<std::streamsize>(0, in.gcount())));
  return bytes;
}

}  // namespace

void RunMetrics::add(const Json& row) {
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

void RunMetrics::fill(Json& run) const {
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

void RunMetrics::add_step(const Json& row) {
  if (row.contains("step")) step_ = count_of(row, "step");
  seconds_ += number_of(row, "step_seconds");
  tokens_ += number_of(row, "tokens");
  is_finished_ = false;
  curve_.add(row, seconds_, tokens_);
  last_ = {{"seconds", rounded(seconds_)}, {"tokens", tokens_}, {"epoch", rounded(number_of(row, "epoch"))}};
  if (row.contains("skipped") && skipped_.size() < kMostRows) skipped_.push_back(step_);
  if (row.contains("spike") && spikes_.size() < kMostRows) spikes_.push_back(step_);
}

// If there are very many rows, the first ones and the last one stay.
void RunMetrics::keep(Json& rows, Json row) const {
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

// The bytes before what is new are those that were read.
bool MetricsFile::goes_on(std::ifstream& in) const { return bytes_before(in, end_) == before_; }

bool MetricsFile::take(const std::string& line) {
  const auto row = parse_row(line);
  if (row) metrics_.add(*row);
  rows_ += row ? 1 : 0;
  return row.has_value();
}

void MetricsFile::read(const fs::path& path, Json& problems) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    throw FormatError(concat(path.string(), ": ", fs::exists(path, error) ? "is no file" : "does not exist",
                             "; give the output_dir of a run"));
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) throw FormatError(concat(path.string(), ": cannot be read"));
  if (end_ > 0 && !goes_on(in)) *this = MetricsFile();
  in.clear();
  in.seekg(end_);
  size_t half_lines = 0;
  for (std::string line; std::getline(in, line);) {
    const bool is_whole = !in.eof();
    // The rest of a half-written line comes later; a row that lacks only the end of its line is a row.
    const bool is_row = take(line);
    if (lines_ == 0 && !is_row) other_ = other_kind(line);
    if (!is_row && !is_whole) {
      half_lines = 1;
      break;
    }
    lines_++;
    end_ += std::ssize(line) + (is_whole ? 1 : 0);
  }
  before_ = bytes_before(in, end_);
  if (lines_ + half_lines > 0 && rows_ == 0)
    problems.push_back(concat(
        path.filename().string(), ": ",
        other_.empty() ? concat("none of its ", lines_ + half_lines, " lines is a row of a run") : other_));
}

}  // namespace trainer
