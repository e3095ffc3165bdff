// The training curve of a run, with a bounded number of points however long the run is.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace trainer {

// Values of a row of metrics.jsonl, whatever a damaged or foreign row has in their place: 0 and "" where
// there is none of the kind, and a number that no run counts up to counts as none.
double number_of(const nlohmann::ordered_json& row, const char* key);
int64_t count_of(const nlohmann::ordered_json& row, const char* key);
std::string text_of(const nlohmann::ordered_json& row, const char* key);

class ThinCurve {
 public:
  // most_points: even, at least 2. A point stands for one step; when there would be more points, each two
  // become one with mean, minimum and maximum.
  explicit ThinCurve(size_t most_points) : most_points_(most_points) {}

  // A row of kind train. seconds, tokens: of the run, up to the end of this step.
  void add(const nlohmann::ordered_json& row, double seconds, double tokens);

  // Returns {"steps_per_point", "step": [...], "seconds", "tokens", "epoch", "series": {"loss": {"mean":
  // [...], "min", "max"}}}. step, seconds, tokens and epoch are those of a point's last step. Without "min"
  // and "max" if a point is one step; null where there was no number. Six digits each. A series that no row
  // has is absent.
  nlohmann::ordered_json to_json() const;

 private:
  static constexpr std::array kSeries{
      "loss",         "grad_norm",         "learning_rate",    "tokens_per_second",
      "step_seconds", "data_wait_seconds", "memory_allocated", "memory_reserved",
      "memory_peak",  "memory_resident",   "memory_limit"};
  struct Values {
    int64_t count = 0;
    double sum = 0, least = 0, most = 0;
    void add(const Values& other);
  };
  struct Point {
    int64_t steps = 0, last_step = 0;
    double seconds = 0, tokens = 0, epoch = 0;
    std::array<Values, kSeries.size()> values;
    void add(const Point& next);
  };

  void halve();

  size_t most_points_;
  int64_t steps_per_point_ = 1;
  std::vector<Point> points_;
};

// Returns the number with six significant digits; null if it is not finite.
nlohmann::ordered_json rounded(double value);

}  // namespace trainer
