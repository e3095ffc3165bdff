#include "report/thin_curve.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace trainer {

using Json = nlohmann::ordered_json;

double number_of(const Json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_number() ? found->get<double>() : 0;
}

int64_t count_of(const Json& row, const char* key) {
  constexpr double kMost = 1e15;
  const double number = number_of(row, key);
  return number >= 0 && number <= kMost ? static_cast<int64_t>(number) : 0;
}

std::string text_of(const Json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_string() ? found->get<std::string>() : "";
}

Json rounded(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == std::floor(value) && std::abs(value) < 1e6) return static_cast<int64_t>(value);
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return std::strtod(text, nullptr);
}

void ThinCurve::Values::add(const Values& other) {
  if (other.count == 0) return;
  least = count > 0 ? std::min(least, other.least) : other.least;
  most = count > 0 ? std::max(most, other.most) : other.most;
  sum += other.sum;
  count += other.count;
}

void ThinCurve::Point::add(const Point& next) {
  steps += next.steps;
  last_step = next.last_step;
  seconds = next.seconds;
  tokens = next.tokens;
  epoch = next.epoch;
  for (size_t i = 0; i < values.size(); i++) values[i].add(next.values[i]);
}

void ThinCurve::add(const Json& row, double seconds, double tokens) {
  Point point{1, count_of(row, "step"), seconds, tokens, 0, {}};
  for (size_t i = 0; i <= kSeries.size(); i++) {
    const auto found = row.find(i < kSeries.size() ? kSeries[i] : "epoch");
    if (found == row.end() || !found->is_number()) continue;
    const double value = found->get<double>();
    if (i < kSeries.size()) {
      point.values[i] = {1, value, value, value};
    } else {
      point.epoch = value;
    }
  }
  if (!points_.empty() && points_.back().steps < steps_per_point_) {
    points_.back().add(point);
    return;
  }
  if (points_.size() == most_points_) halve();
  points_.push_back(std::move(point));
}

void ThinCurve::halve() {
  for (size_t i = 0; i + 1 < points_.size(); i += 2) {
    points_[i].add(points_[i + 1]);
    points_[i / 2] = points_[i];
  }
  points_.resize(points_.size() / 2);
  steps_per_point_ *= 2;
}

Json ThinCurve::to_json() const {
  Json out{{"steps_per_point", steps_per_point_}};
  for (const char* name : {"step", "seconds", "tokens", "epoch"}) out[name] = Json::array();
  for (const Point& point : points_) {
    out["step"].push_back(point.last_step);
    out["seconds"].push_back(rounded(point.seconds));
    out["tokens"].push_back(rounded(point.tokens));
    out["epoch"].push_back(rounded(point.epoch));
  }
  out["series"] = Json::object();
  for (size_t i = 0; i < kSeries.size(); i++) {
    Json mean = Json::array(), least = Json::array(), most = Json::array();
    bool has_values = false;
    for (const Point& point : points_) {
      const Values& values = point.values[i];
      has_values = has_values || values.count > 0;
      const bool known = values.count > 0;
      mean.push_back(known ? rounded(values.sum / static_cast<double>(values.count)) : Json());
      if (steps_per_point_ == 1) continue;
      least.push_back(known ? rounded(values.least) : Json());
      most.push_back(known ? rounded(values.most) : Json());
    }
    if (!has_values) continue;
    Json& series = out["series"][kSeries[i]] = Json{{"mean", std::move(mean)}};
    if (steps_per_point_ == 1) continue;
    series["min"] = std::move(least);
    series["max"] = std::move(most);
  }
  return out;
}

}  // namespace trainer
