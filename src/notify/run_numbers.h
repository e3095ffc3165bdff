// The numbers of a run that messages tell.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "trainer/base/metrics.h"

#include "observe/time_left.h"

namespace trainer {

class RunNumbers {
 public:
  // `metric`: the number of an evaluation that is told, "eval_loss".
  explicit RunNumbers(std::string metric) : metric_(std::move(metric)) {}

  void begin(int64_t first_step, const RunOutlook& outlook);
  // Uses rows of kind train, eval and save.
  void add(const MetricRow& row);
  // Speed and loss are means from now on.
  void begin_interval();

  int64_t step() const { return step_; }
  int64_t total_steps() const { return total_steps_; }
  double seconds() const;  // time in this process

  // "step 1,200 of 5,000 (24 %)"; "no step yet".
  std::string step_text() const;
  // "loss 1.234 · eval_loss 1.302 (step 1,000)\n12,345 tok/s · 2 h 05 min left\nmemory 10.2 GB of 24.0 GB",
  // as far as they are known.
  std::string text() const;
  // "eval_loss 1.302 (step 1,000)" of the last and of the best evaluation; "" if there is none.
  std::string evaluation_text() const;
  std::string best_text() const;
  void set_best() { best_ = evaluation_, best_step_ = evaluation_step_; }

  // The same as numbers; only those that are known.
  nlohmann::ordered_json json() const;

 private:
  void add_step(const nlohmann::ordered_json& values);
  std::optional<double> loss() const;
  std::optional<double> tokens_per_second() const;
  std::optional<double> seconds_left() const;

  std::string metric_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  int64_t step_ = 0, total_steps_ = 0;
  TimeLeft time_left_;
  bool has_step_ = false;
  double losses_ = 0, seconds_ = 0;  // sums of the interval
  int64_t steps_ = 0, tokens_ = 0;
  int64_t memory_peak_ = 0, memory_limit_ = 0;
  double learning_rate_ = 0, epoch_ = 0;
  std::optional<double> evaluation_, best_;
  int64_t evaluation_step_ = 0, best_step_ = 0;
};

}  // namespace trainer
