#include <nlohmann/json.hpp>

#include "trainer/text/metrics.h"

namespace trainer {

void JsonValidity::add(std::string_view prediction, std::string_view target) {
  using nlohmann::json;
  const json expected = json::parse(target, nullptr, /*allow_exceptions=*/false);
  const json predicted = json::parse(prediction, nullptr, /*allow_exceptions=*/false);
  count_++;
  json_targets_ += expected.is_structured() ? 1 : 0;
  valid_ += predicted.is_discarded() ? 0 : 1;
  equal_ += !predicted.is_discarded() && predicted == expected ? 1 : 0;
}

double JsonValidity::valid() const { return static_cast<double>(valid_) / static_cast<double>(count_); }

double JsonValidity::match() const { return static_cast<double>(equal_) / static_cast<double>(count_); }

}  // namespace trainer
