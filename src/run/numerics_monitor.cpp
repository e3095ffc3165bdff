#include "run/numerics_monitor.h"

#include <algorithm>
#include <cmath>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace {

// The cause of a bad step: samples whose loss is not finite on their own, or the gradient if the loss was
// finite. "together": neither of the two.
struct Blame {
  std::string cause;
  std::vector<std::string> origins;  // origins of the samples that are to blame, or of all
};

Blame blame_for(const StepResult& result, const std::vector<std::string>& origins) {
  Blame blame{"samples", {}};
  for (size_t i = 0; i < std::min(origins.size(), result.sample_losses.size()); i++) {
    if (!std::isfinite(result.sample_losses[i])) blame.origins.push_back(origins[i]);
  }
  if (!blame.origins.empty()) return blame;
  return {std::isfinite(result.loss) ? "gradient" : "together", origins};
}

std::string number(double value) { return std::isnan(value) ? "nan" : concat(value); }  // never "-nan"

std::string first_of(const std::vector<std::string>& origins) {
  constexpr size_t kShown = 3;
  std::vector<std::string> shown(
      origins.begin(), origins.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, origins.size())));
  if (origins.size() > kShown) shown.emplace_back("…");
  return join(shown);
}

std::string explained(const Blame& blame, size_t samples) {
  const std::string named = first_of(blame.origins);
  if (blame.cause == "gradient")
    return concat("the loss of each sample is finite, so it is the gradient; the samples are ", named);
  if (blame.cause == "together")
    return concat("each sample on its own has a finite loss; the samples are ", named);
  if (blame.origins.size() == samples && samples > 1)
    return concat("the loss of every sample is not finite, so it is the weights; the samples are ", named);
  return concat("the loss is not finite for ", grouped(std::ssize(blame.origins)), " of ",
                grouped(static_cast<int64_t>(samples)), " samples: ", named);
}

MetricRow row_of(int64_t step, const StepResult& result, const Blame& blame,
                 const std::vector<std::string>& origins) {
  nlohmann::ordered_json samples = nlohmann::ordered_json::array();
  for (size_t i = 0; i < origins.size(); i++) {
    samples.push_back({{"origin", origins[i]}});
    if (i < result.sample_losses.size()) samples.back()["loss"] = result.sample_losses[i];
  }
  return {"bad_step",
          {{"step", step},
           {"loss", result.loss},
           {"grad_norm", result.grad_norm},
           {"learning_rate", result.learning_rate},
           {"cause", blame.cause},
           {"samples", std::move(samples)}}};
}

constexpr size_t kWindow = 64, kLeast = 20;
constexpr double kFactor = 1.5, kDeviations = 8;
constexpr double kLeastRise =
    0.05;  // a model that is nearly always right has losses of 1e-4 with single ones of 1e-3
constexpr double kNormal = 1.4826;  // converts the median absolute deviation to a standard deviation

// For an even count: the upper one of the two middle values.
double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

NumericsMonitor::NumericsMonitor(std::filesystem::path file, int64_t max_bad_steps, const RunPosition& from)
    : file_(std::move(file)),
      max_bad_steps_(max_bad_steps),
      bad_steps_in_a_row_(from.bad_steps_in_a_row),
      recent_losses_(from.recent_losses) {
  if (!file_.empty() && std::filesystem::exists(file_)) remove_rows_after(from.step);
}

void NumericsMonitor::remove_rows_after(int64_t step) const {
  const std::string text = read_file(file_);
  std::string kept;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const auto row = nlohmann::json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                           text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    const bool is_later = !row.is_object() || row.value("step", step + 1) > step;
    if (!is_later) kept += text.substr(begin, end + 1 - begin);
  }
  if (kept.empty()) {
    delete_entry(file_);
  } else if (kept != text) {
    write_atomically(file_, kept);
  }
}

void NumericsMonitor::add(int64_t step, const StepResult& result, MetricRow& row, const Origins& origins) {
  if (result.skipped) {
    bad_steps_in_a_row_++;
    add_bad_step(step, result, origins());
    return;
  }
  bad_steps_in_a_row_ = 0;
  if (const std::optional<double> median = median_below_spike(result.loss)) {
    row.values["spike"] = true;
    log::warning(concat("step ", step, ": a loss of ", result.loss,
                        " is far above those of the steps before, whose median is ", *median));
  }
  if (recent_losses_.size() == kWindow) recent_losses_.erase(recent_losses_.begin());
  recent_losses_.push_back(result.loss);
}

void NumericsMonitor::add_bad_step(int64_t step, const StepResult& result,
                                   const std::vector<std::string>& origins) {
  const Blame blame = blame_for(result, origins);
  log::warning(concat("step ", step, " skipped: loss ", number(result.loss), ", gradient norm ",
                      number(result.grad_norm), "; ", explained(blame, origins.size()), "; all are in ",
                      file_.string()));
  if (file_.empty()) return;
  try {
    if (!rows_) rows_.emplace(file_);
    rows_->write(row_of(step, result, blame, origins));
  } catch (const FormatError& e) {
    log::warning(e.what());  // the run continues
  }
}

// Returns the median of the losses before if this one is a spike, else nothing.
std::optional<double> NumericsMonitor::median_below_spike(double loss) const {
  if (recent_losses_.size() < kLeast) return std::nullopt;
  const double median = median_of(recent_losses_);
  std::vector<double> distances;
  for (const double value : recent_losses_) distances.push_back(std::abs(value - median));
  const double rise = std::max(kLeastRise, kDeviations * kNormal * median_of(distances));
  const bool is_spike = loss > kFactor * median && loss > median + rise;
  return is_spike ? std::optional(median) : std::nullopt;
}

std::optional<std::string> NumericsMonitor::reason_to_end() const {
  const int64_t bad = bad_steps_in_a_row_;
  if (bad < std::max<int64_t>(max_bad_steps_, 1)) return std::nullopt;
  return concat(bad == 1 ? "a step" : concat(bad, " steps in a row"),
                " had a loss or a gradient that is not finite and was skipped (training.max_bad_steps: ",
                max_bad_steps_, max_bad_steps_ == 0 ? ", the first one ends the run" : "",
                "); the samples are in ", file_.string());
}

void NumericsMonitor::save(RunPosition& position) const {
  position.bad_steps_in_a_row = bad_steps_in_a_row_;
  position.recent_losses = recent_losses_;
}

}  // namespace trainer
