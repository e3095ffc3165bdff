#include "notify/run_numbers.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "trainer/base/strings.h"

#include "base/progress.h"

namespace trainer {
namespace {

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

// The number of a row; nullopt if it has none, or NaN.
std::optional<double> number_in(const nlohmann::ordered_json& values, const std::string& key) {
  const auto found = values.find(key);
  if (found == values.end() || !found->is_number() || !std::isfinite(found->get<double>()))
    return std::nullopt;
  return found->get<double>();
}

int64_t integer_in(const nlohmann::ordered_json& values, const std::string& key) {
  return static_cast<int64_t>(number_in(values, key).value_or(0));
}

}  // namespace

void RunNumbers::begin(int64_t first_step, const RunOutlook& outlook) {
  step_ = first_step;
  total_steps_ = outlook.total_steps;
  time_left_.set_outlook(outlook);
}

void RunNumbers::add(const MetricRow& row) {
  time_left_.add(row);
  if (row.kind == "train") add_step(row.values);
  if (row.kind != "eval") return;
  evaluation_ = number_in(row.values, metric_);
  evaluation_step_ = integer_in(row.values, "step");
}

void RunNumbers::add_step(const nlohmann::ordered_json& values) {
  step_ = integer_in(values, "step");
  has_step_ = true;
  seconds_ += number_in(values, "step_seconds").value_or(0);
  tokens_ += integer_in(values, "tokens");
  memory_peak_ = std::max(memory_peak_, integer_in(values, "memory_peak"));
  memory_limit_ = integer_in(values, "memory_limit");
  learning_rate_ = number_in(values, "learning_rate").value_or(0);
  epoch_ = number_in(values, "epoch").value_or(0);
  if (const auto loss = number_in(values, "loss")) {
    losses_ += *loss;
    steps_++;
  }
}

void RunNumbers::begin_interval() {
  losses_ = seconds_ = 0;
  steps_ = tokens_ = 0;
}

double RunNumbers::seconds() const { return seconds_since(start_); }

std::optional<double> RunNumbers::loss() const {
  return steps_ > 0 ? std::optional(losses_ / static_cast<double>(steps_)) : std::nullopt;
}

std::optional<double> RunNumbers::tokens_per_second() const {
  return seconds_ > 0 ? std::optional(static_cast<double>(tokens_) / seconds_) : std::nullopt;
}

std::optional<double> RunNumbers::seconds_left() const {
  const auto estimate = time_left_.estimate();
  return estimate ? std::optional(estimate->seconds) : std::nullopt;
}

std::string RunNumbers::step_text() const {
  if (step_ == 0 || total_steps_ == 0) return "no step yet";
  return concat("step ", grouped(step_), " of ", grouped(total_steps_), " (", 100 * step_ / total_steps_,
                " %)");
}

std::string RunNumbers::evaluation_text() const {
  if (!evaluation_) return "";
  return concat(metric_, " ", short_number(*evaluation_), " (step ", grouped(evaluation_step_), ")");
}

std::string RunNumbers::best_text() const {
  if (!best_) return "";
  return concat(metric_, " ", short_number(*best_), " (step ", grouped(best_step_), ")");
}

std::string RunNumbers::text() const {
  std::vector<std::string> quality, speed, lines;
  if (const auto known = loss()) quality.push_back("loss " + short_number(*known));
  if (evaluation_) quality.push_back(evaluation_text());
  if (const auto known = tokens_per_second())
    speed.push_back(grouped(static_cast<int64_t>(std::llround(*known))) + " tok/s");
  if (const auto left = seconds_left(); left && step_ < total_steps_)
    speed.push_back("about " + duration_string(*left) + " left");
  if (!quality.empty()) lines.push_back(join(quality, " · "));
  if (!speed.empty()) lines.push_back(join(speed, " · "));
  if (memory_peak_ > 0)
    lines.push_back(concat("memory ", bytes_string(memory_peak_),
                           memory_limit_ > 0 ? " of " + bytes_string(memory_limit_) : ""));
  return join(lines, "\n");
}

nlohmann::ordered_json RunNumbers::json() const {
  nlohmann::ordered_json json = {{"step", step_}, {"total_steps", total_steps_}};
  if (!has_step_) return json;
  json["epoch"] = epoch_;
  if (const auto known = loss()) json["loss"] = *known;
  if (evaluation_) json[metric_] = *evaluation_;
  json["learning_rate"] = learning_rate_;
  if (const auto known = tokens_per_second()) json["tokens_per_second"] = *known;
  if (const auto known = seconds_left()) json["seconds_left"] = *known;
  json["memory_peak"] = memory_peak_;
  if (memory_limit_ > 0) json["memory_limit"] = memory_limit_;
  return json;
}

}  // namespace trainer
