#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/text/metrics.h"

#include "text/metrics/metric.h"

namespace trainer {
namespace {

// The mean of a number that each answer has by itself.
class Mean final : public Metric {
 public:
  using Measure = double (*)(std::string_view prediction, std::string_view target);
  Mean(const char* name, Measure measure) : name_(name), measure_(measure) {}
  size_t size() const override { return 1; }
  void measure(std::string_view prediction, std::string_view target, std::span<double> out) const override {
    out[0] = measure_(prediction, target);
  }
  void score(std::span<const double> sums, double count, Scores& out) const override {
    out.emplace_back(name_, sums[0] / count);
  }

 private:
  const char* name_;
  Measure measure_;
};

class RougeMeans final : public Metric {
 public:
  size_t size() const override { return 3; }
  void measure(std::string_view prediction, std::string_view target, std::span<double> out) const override {
    const Rouge scores = rouge(prediction, target);
    out[0] = scores.rouge1;
    out[1] = scores.rouge2;
    out[2] = scores.rougeL;
  }
  void score(std::span<const double> sums, double count, Scores& out) const override {
    out.insert(out.end(),
               {{"rouge1", sums[0] / count}, {"rouge2", sums[1] / count}, {"rougeL", sums[2] / count}});
  }
};

struct Known {
  const char* name;
  std::unique_ptr<Metric> (*make)();
};

constexpr std::array kKnown{
    Known{"exact_match",
          []() -> std::unique_ptr<Metric> {
            return std::make_unique<Mean>("exact_match",
                                          [](std::string_view prediction, std::string_view target) {
                                            return exact_match(prediction, target) ? 1.0 : 0.0;
                                          });
          }},
    Known{"f1", []() -> std::unique_ptr<Metric> { return std::make_unique<Mean>("f1", token_f1); }},
    Known{"rouge", []() -> std::unique_ptr<Metric> { return std::make_unique<RougeMeans>(); }},
    Known{"bleu", bleu_metric},
    Known{"chrf", chrf_metric},
    Known{"ter", ter_metric},
    Known{"json", json_metric}};

}  // namespace

TextMetrics::TextMetrics(const std::vector<std::string>& metrics) {
  for (const std::string& name : metrics) {
    const auto known = std::ranges::find(kKnown, name, &Known::name);
    if (known == kKnown.end()) {
      std::vector<std::string> names;
      for (const Known& one : kKnown) names.emplace_back(one.name);
      throw ConfigError(concat("there is no metric '", name, "'; known are ", join(names)));
    }
    metrics_.push_back(known->make());
    width_ += metrics_.back()->size();
  }
}

void TextMetrics::add(std::string_view prediction, std::string_view target, std::string_view given) {
  kept_.resize(kept_.size() + width_);
  std::span<double> place = std::span(kept_).last(width_);
  for (const auto& metric : metrics_) {
    const bool takes_given = metric->wants_json() && !given.empty() && !nlohmann::json::accept(target);
    const std::string_view expected = takes_given ? given : target;
    metric->measure(prediction, expected, place.first(metric->size()));
    metric->fields(prediction, expected, [&](const std::string& name, bool right) {
      FieldScore& field = fields_[name];
      field.name = name;
      field.right += right ? 1 : 0;
      field.count++;
    });
    place = place.subspan(metric->size());
  }
}

std::span<const double> TextMetrics::row(size_t answer) const {
  return std::span(kept_).subspan(answer * width_, width_);
}

Scores TextMetrics::scores_of(std::span<const double> sums, double count) const {
  Scores out;
  for (const auto& metric : metrics_) {
    metric->score(sums.first(metric->size()), count, out);
    sums = sums.subspan(metric->size());
  }
  return out;
}

Scores TextMetrics::values() const {
  if (answers() == 0) return {};
  std::vector<double> sums(width_);
  for (size_t i = 0; i < answers(); i++) std::ranges::transform(row(i), sums, sums.begin(), std::plus());
  return scores_of(sums, static_cast<double>(answers()));
}

std::vector<FieldScore> TextMetrics::fields() const {
  std::vector<FieldScore> out;
  const Scores scores = values();
  if (std::ranges::find(scores, "json_fields", &Scores::value_type::first) == scores.end()) return out;
  for (const auto& [name, field] : fields_) out.push_back(field);
  return out;
}

}  // namespace trainer
