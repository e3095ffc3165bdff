// A metric keeps a few numbers of each answer. Its scores of a set of answers follow from the sums of these
// numbers, so that sets can be drawn again and again without looking at the texts (resampling.cpp).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/text/metrics.h"

namespace trainer {

class Metric {
 public:
  virtual ~Metric() = default;
  virtual size_t size() const = 0;  // numbers of an answer
  // Writes the numbers of an answer to `out` (size()), which holds zeros.
  virtual void measure(std::string_view prediction, std::string_view target, std::span<double> out) const = 0;
  // Appends the scores of a set with these sums.
  virtual void score(std::span<const double> sums, double count, Scores& out) const = 0;
  // Calls `use`(name, whether it is right) for each field of a JSON target.
  using UseField = std::function<void(const std::string& name, bool right)>;
  virtual void fields(std::string_view, std::string_view, const UseField&) const {}
  // Whether the target of the data counts where only that is JSON.
  virtual bool wants_json() const { return false; }
};

std::unique_ptr<Metric> bleu_metric();
std::unique_ptr<Metric> chrf_metric();
std::unique_ptr<Metric> ter_metric();
std::unique_ptr<Metric> json_metric();

}  // namespace trainer
