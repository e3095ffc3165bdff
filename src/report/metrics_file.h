// metrics.jsonl of a run, read further each time it is asked for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

#include "report/thin_curve.h"

namespace trainer {

// What the rows of metrics.jsonl say.
class RunMetrics {
 public:
  void add(const nlohmann::ordered_json& row);
  // Sets the keys of `run` that come from the rows.
  void fill(nlohmann::ordered_json& run) const;

 private:
  using Json = nlohmann::ordered_json;
  static constexpr size_t kMostPoints = 3000;  // more than a screen has pixels

  void add_step(const Json& row);
  void keep(Json& rows, Json row) const;

  int64_t step_ = 0;
  double seconds_ = 0, tokens_ = 0;
  bool is_finished_ = false;
  ThinCurve curve_{kMostPoints};
  Json last_, plan_;
  Json evaluations_ = Json::array(), recoveries_ = Json::array(), saves_ = Json::array(),
       skipped_ = Json::array(), spikes_ = Json::array(), growth_ = Json::array();
};

class MetricsFile {
 public:
  // Reads what has been added since the last call; all of it if the file was replaced, or cut as a run does
  // that resumes. Half-written lines, and lines that another program has added, are passed over. Adds to
  // `problems` when no line is a row. Throws FormatError when the file is missing or cannot be read.
  void read(const std::filesystem::path& path, nlohmann::ordered_json& problems);
  void fill(nlohmann::ordered_json& run) const { metrics_.fill(run); }

 private:
  bool goes_on(std::ifstream& in) const;
  bool take(const std::string& line);

  RunMetrics metrics_;
  int64_t end_ = 0;     // the bytes that have been read
  std::string before_;  // the last ones of them
  size_t lines_ = 0, rows_ = 0;
  std::string other_;  // what the file is instead, if its first line is no row
};

}  // namespace trainer
