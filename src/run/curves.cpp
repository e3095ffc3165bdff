#include "run/curves.h"

#include <algorithm>
#include <sstream>
#include <system_error>
#include <utility>

#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/config/load.h"

#include "base/memory_room.h"

namespace trainer {
namespace {

using std::chrono::duration;
constexpr double kFirstPage = 60, kAfterEvaluation = 20;  // seconds, if observe.report_minutes is no less
constexpr double kMostOfTheTime = 0.05;                   // the thread's share of the time

// The keys that make runs differ: those that are not at their defaults.
nlohmann::ordered_json hparams(const Config& config) {
  nlohmann::ordered_json values = nlohmann::ordered_json::object();
  for (const std::string& name : changed_keys(config)) {
    const std::string text = value_text(config, name);
    const auto value = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
    values[name] = value.is_primitive() && !value.is_null() ? value : nlohmann::ordered_json(text);
  }
  return values;
}

// Markdown in which the text has no effect: a code block that it cannot end.
std::string as_code(const std::string& text) {
  std::string fence = "```";
  while (text.find(fence) != std::string::npos) fence += '`';
  return concat(fence, "\n", text, "\n", fence, "\n\n");
}

// Returns why it could not be written.
std::string written(const std::filesystem::path& directory, ReportedState state) {
  try {
    write_report({directory}, directory / "report.html", state);
    return "";
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace

Curves::Curves(const Config& config, std::filesystem::path directory, int64_t first_step)
    : directory_(std::move(directory)),
      shown_(std::max<int64_t>(config.evaluation.show, 1)),
      interval_(60 * config.observe.report_minutes) {
  if (!config.observe.tensorboard) return;
  tensorboard_.emplace(directory_ / "tensorboard", first_step);
  std::ostringstream text;
  write_yaml(config, text);
  tensorboard_->begin(text.str(), hparams(config));
}

Curves::~Curves() {
  if (!is_finished_) write_page(ReportedState::stopped);
}

void Curves::add(const MetricRow& row) {
  if (tensorboard_) tensorboard_->write(row);
  has_evaluation_ = has_evaluation_ || row.kind == "eval";
  if (is_page_due()) write_in_background();
}

void Curves::add_predictions(const Predictions& predictions, int64_t step) {
  if (!tensorboard_) return;
  const int64_t count = std::min(shown_, std::ssize(predictions.rows));
  for (int64_t i = 0; i < count; i++) {
    const Prediction& row = predictions.rows[static_cast<size_t>(i)];
    tensorboard_->write_text(concat("predictions/", i + 1),
                             concat("input\n\n", as_code(row.input), "target\n\n", as_code(row.target),
                                    "prediction\n\n", as_code(row.prediction)),
                             step);
  }
}

bool Curves::is_page_due() const {
  if (interval_ <= Seconds(0)) return false;
  if (pending_.valid() && pending_.wait_for(Seconds(0)) != std::future_status::ready) return false;
  double wait = interval_.count();
  if (is_first_) wait = std::min(wait, kFirstPage);
  if (has_evaluation_) wait = std::min(wait, kAfterEvaluation);
  return Clock::now() - last_written_ >= Seconds(std::max(wait, cost_.count() / kMostOfTheTime));
}

void Curves::write_in_background() {
  if (pending_.valid()) take_outcome(pending_.get());
  is_first_ = has_evaluation_ = false;
  last_written_ = Clock::now();
  if (!is_room_for_threads(1)) return;  // it is tried again
  try {
    pending_ = std::async(std::launch::async, [this] {
      const Clock::time_point begin = Clock::now();
      std::string problem = written(directory_, ReportedState::running);
      cost_ = Clock::now() - begin;  // read when this is ready
      return problem;
    });
  } catch (const std::system_error&) {  // no thread: it is tried again
  }
}

void Curves::write_page(ReportedState state) {
  if (pending_.valid()) take_outcome(pending_.get());
  if (interval_ > Seconds(0)) take_outcome(written(directory_, state));
}

void Curves::take_outcome(const std::string& problem) {
  if (!problem.empty() && !std::exchange(warned_, true))
    log::warning(concat("the page with the curves is not written: ", problem, "; training continues"));
}

void Curves::finish() {
  is_finished_ = true;
  write_page(ReportedState::unknown);
}

}  // namespace trainer
