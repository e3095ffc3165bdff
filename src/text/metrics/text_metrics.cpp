#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/text/metrics.h"

#include "text/tokenizer/json_reader.h"

namespace trainer {
namespace {

const std::vector<std::string> kKnown{"exact_match", "f1", "rouge", "bleu", "chrf", "json"};

}  // namespace

TextMetrics::TextMetrics(const std::vector<std::string>& metrics) : metrics_(metrics) {
  for (const std::string& name : metrics) {
    if (std::ranges::find(kKnown, name) == kKnown.end())
      throw ConfigError(concat("there is no metric '", name, "'; known are ", join(kKnown)));
  }
}

void TextMetrics::add(std::string_view prediction, std::string_view target, std::string_view given) {
  count_++;
  for (const std::string& name : metrics_) {
    if (name == "exact_match") {
      exact_ += exact_match(prediction, target) ? 1 : 0;
    } else if (name == "f1") {
      f1_ += token_f1(prediction, target);
    } else if (name == "rouge") {
      const Rouge scores = rouge(prediction, target);
      rouge_.rouge1 += scores.rouge1;
      rouge_.rouge2 += scores.rouge2;
      rouge_.rougeL += scores.rougeL;
    } else if (name == "bleu") {
      bleu_.add(prediction, target);
    } else if (name == "chrf") {
      chrf_.add(prediction, target);
    } else {
      const bool is_json = given.empty() || nlohmann::json::accept(target);
      json_.add(prediction, is_json ? target : given);
    }
  }
}

std::vector<std::pair<std::string, double>> TextMetrics::values() const {
  std::vector<std::pair<std::string, double>> out;
  if (count_ == 0) return out;
  const double count = static_cast<double>(count_);
  for (const std::string& name : metrics_) {
    if (name == "exact_match") {
      out.emplace_back(name, static_cast<double>(exact_) / count);
    } else if (name == "f1") {
      out.emplace_back(name, f1_ / count);
    } else if (name == "rouge") {
      out.insert(out.end(), {{"rouge1", rouge_.rouge1 / count},
                             {"rouge2", rouge_.rouge2 / count},
                             {"rougeL", rouge_.rougeL / count}});
    } else if (name == "bleu") {
      out.emplace_back(name, bleu_.score());
    } else if (name == "chrf") {
      out.emplace_back(name, chrf_.score());
    } else if (json_.applies()) {
      out.insert(out.end(), {{"json_valid", json_.valid()}, {"json_match", json_.match()}});
    }
  }
  return out;
}

// Values are compared by recursion: what is nested deeper than any answer counts as no JSON.
static nlohmann::json parse_answer(std::string_view text) {
  constexpr int kDeepest = 500;
  if (nested_too_deep(text, kDeepest)) return nlohmann::json::value_t::discarded;
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

void JsonValidity::add(std::string_view prediction, std::string_view target) {
  const nlohmann::json expected = parse_answer(target), predicted = parse_answer(prediction);
  count_++;
  json_targets_ += expected.is_structured() ? 1 : 0;
  valid_ += predicted.is_discarded() ? 0 : 1;
  equal_ += !predicted.is_discarded() && predicted == expected ? 1 : 0;
}

double JsonValidity::valid() const { return static_cast<double>(valid_) / static_cast<double>(count_); }

double JsonValidity::match() const { return static_cast<double>(equal_) / static_cast<double>(count_); }

}  // namespace trainer
