// Scores for tasks with JSON output.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "trainer/base/strings.h"

#include "text/metrics/metric.h"
#include "text/tokenizer/json_reader.h"

namespace trainer {
namespace {

using Json = nlohmann::json;

// Values are compared by recursion: what is nested deeper than any answer counts as no JSON.
Json parse_answer(std::string_view text) {
  constexpr int kDeepest = 500;
  if (nested_too_deep(text, kDeepest)) return Json::value_t::discarded;
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

bool is_list_of_objects(const Json& value) {
  return value.is_array() && !value.empty() && std::ranges::all_of(value, &Json::is_object);
}

// A field is a member of an object that is neither an object itself nor a list of objects. `predicted` is
// nullptr where the answer has nothing in this place.
void for_each_field(const Json& target, const Json* predicted, const std::string& name,
                    const Metric::UseField& use) {
  if (target.is_object() && !target.empty()) {
    for (const auto& [key, value] : target.items()) {
      const bool there = predicted != nullptr && predicted->is_object() && predicted->contains(key);
      for_each_field(value, there ? &predicted->at(key) : nullptr,
                     name.empty() ? key : concat(name, ".", key), use);
    }
  } else if (is_list_of_objects(target)) {
    for (size_t i = 0; i < target.size(); i++) {
      const bool there = predicted != nullptr && predicted->is_array() && i < predicted->size();
      for_each_field(target[i], there ? &predicted->at(i) : nullptr, name + "[]", use);
    }
  } else if (!name.empty()) {
    use(name, predicted != nullptr && *predicted == target);
  }
}

class JsonMetric final : public Metric {
 public:
  size_t size() const override { return 5; }
  bool wants_json() const override { return true; }

  // Whether the target is an object or array, the answer is JSON, and both are equal; fields that are right,
  // and all.
  void measure(std::string_view prediction, std::string_view target, std::span<double> out) const override {
    const Json expected = parse_answer(target), predicted = parse_answer(prediction);
    out[0] = expected.is_structured() ? 1 : 0;
    out[1] = predicted.is_discarded() ? 0 : 1;
    out[2] = !predicted.is_discarded() && predicted == expected ? 1 : 0;
    if (!expected.is_structured()) return;
    for_each_field(expected, &predicted, "", [&](const std::string&, bool right) {
      out[3] += right ? 1 : 0;
      out[4] += 1;
    });
  }

  void score(std::span<const double> sums, double count, Scores& out) const override {
    if (sums[0] != count) return;  // the scores mean nothing
    out.emplace_back("json_valid", sums[1] / count);
    out.emplace_back("json_match", sums[2] / count);
    if (sums[4] > 0) out.emplace_back("json_fields", sums[3] / sums[4]);
  }

  void fields(std::string_view prediction, std::string_view target, const UseField& use) const override {
    const Json expected = parse_answer(target), predicted = parse_answer(prediction);
    if (expected.is_structured()) for_each_field(expected, &predicted, "", use);
  }
};

}  // namespace

std::unique_ptr<Metric> json_metric() { return std::make_unique<JsonMetric>(); }

}  // namespace trainer
