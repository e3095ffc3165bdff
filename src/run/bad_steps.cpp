#include "trainer/run/bad_steps.h"

#include <algorithm>
#include <cmath>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace {

// Where the blame lies: in samples whose loss is not finite when they are alone, else in the gradient where
// the loss was finite. "together": in neither.
struct Blame {
  std::string cause;
  std::vector<std::string> origins;  // of the samples that are to blame, or of all
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
    return concat("alone, each sample has a loss that is finite; the samples are ", named);
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

}  // namespace

BadSteps::BadSteps(std::filesystem::path file, int64_t max_bad_steps, int64_t step, int64_t in_a_row)
    : file_(std::move(file)), max_bad_steps_(max_bad_steps), in_a_row_(in_a_row) {
  if (std::filesystem::exists(file_)) remove_rows_after(step);
}

void BadSteps::remove_rows_after(int64_t step) const {
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

void BadSteps::add(int64_t step, const StepResult& result, const std::vector<std::string>& origins) {
  if (!result.skipped) {
    in_a_row_ = 0;
    return;
  }
  in_a_row_++;
  const Blame blame = blame_for(result, origins);
  log::warning(concat("step ", step, " is not applied: loss ", number(result.loss), ", gradient norm ",
                      number(result.grad_norm), "; ", explained(blame, origins.size()), "; all are in ",
                      file_.string()));
  try {
    if (!rows_) rows_.emplace(file_);
    rows_->write(row_of(step, result, blame, origins));
  } catch (const FormatError& e) {
    log::warning(e.what());  // the run goes on
  }
}

std::string BadSteps::reason_to_end() const {
  if (in_a_row_ < std::max<int64_t>(max_bad_steps_, 1)) return "";
  return concat(in_a_row_ == 1 ? "a step" : concat(in_a_row_, " steps in a row"),
                " had a loss or a gradient that is not finite and was not applied (training.max_bad_steps: ",
                max_bad_steps_, max_bad_steps_ == 0 ? ", the first one ends the run" : "",
                "); the samples are in ", file_.string());
}

}  // namespace trainer
