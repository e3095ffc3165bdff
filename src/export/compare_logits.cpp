#include "export/compare_logits.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <ATen/ATen.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace {

// The relative error of logits that is explained by rounding the weights once. The error of each product is
// about as large as that of a weight, and errors in a residual network add up as if they were independent.
// Sums in another order differ by less than 1e-5.
double bound_for(Dtype dtype, int64_t blocks) {
  return std::max(1e-5, 4 * unit_of(dtype) * std::sqrt(static_cast<double>(blocks) + 1));
}

std::string short_number(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", number);
  return text;
}

}  // namespace

double unit_of(Dtype dtype) {
  if (dtype == Dtype::bf16) return std::ldexp(1.0, -8);
  return dtype == Dtype::f16 ? std::ldexp(1.0, -11) : 0;
}

at::Tensor require_finite(at::Tensor logits, const std::filesystem::path& source) {
  if (logits.isfinite().all().item<bool>()) return logits;
  throw of_family(
      ErrorCode::export_check,
      FormatError(concat(source.string(),
                         ": the model's own logits are not finite; its weights are damaged or diverged")));
}

std::string check_logits(const at::Tensor& found, const at::Tensor& expected,
                         const std::filesystem::path& source, const LogitsBound& allowed) {
  const std::string what = concat("reloaded from disk, its logits at ", expected.size(0), " positions ");
  if (found.equal(expected)) return concat(what, "are the model's own, bit for bit");
  const double error = found.sizes() == expected.sizes()
                           ? (found.sub(expected).norm() / expected.norm()).item<double>()
                           : INFINITY;
  const double bound = allowed.exact ? 0 : bound_for(allowed.dtype, allowed.blocks);
  if (!(error <= bound)) {
    throw of_family(
        ErrorCode::export_check,
        FormatError(concat("the export was written, but ", what, "differ from those of ", source.string(),
                           " by ", short_number(error), " (relative 2-norm; bound ", short_number(bound),
                           "), so it was removed; please report this")));
  }
  return concat(what, "differ from the model's by ", short_number(error), " (relative 2-norm; bound ",
                short_number(bound), ")");
}

std::string difference_text(const at::Tensor& found, const at::Tensor& expected, const std::string& whom) {
  const at::Tensor difference = found.sub(expected).abs();
  return concat("at ", expected.size(0), " positions, the logits differ from those of ", whom, " by at most ",
                short_number(difference.max().item<double>()), ", on average by ",
                short_number(difference.mean().item<double>()), " (they reach ",
                short_number(expected.abs().max().item<double>()), ")");
}

std::string answers_text(const at::Tensor& found, const at::Tensor& expected) {
  const auto changed = found.argmax(-1).ne(expected.argmax(-1)).sum().item<int64_t>();
  return concat("rounding changes the most likely token at ", changed, " of ", expected.size(0),
                " positions; --dtype fp32 rounds nothing, --dtype fp16 8 times less than bf16");
}

}  // namespace trainer
