#include "nn/rope_frequencies.h"

#include <cmath>
#include <numbers>

#include <ATen/ATen.h>

namespace trainer {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

// [0, 2, ... head_dim - 2] / head_dim
at::Tensor exponents(const RopeParameters& p) {
  return at::arange(0, p.head_dim, 2, at::kFloat).div_(p.head_dim);
}

at::Tensor plain(const RopeParameters& p) { return at::pow(p.theta, exponents(p)).reciprocal_(); }

// _compute_llama3_parameters: low frequencies are divided by the factor, high ones are kept.
at::Tensor llama3(const RopeParameters& p) {
  const double context = static_cast<double>(p.original_max_position_embeddings);
  const at::Tensor kept = plain(p), wavelength = kept.reciprocal() * kTurn;
  const at::Tensor smooth =
      (wavelength.reciprocal() * context - p.low_freq_factor) / (p.high_freq_factor - p.low_freq_factor);
  const at::Tensor between = (1 - smooth) * kept / p.factor + smooth * kept;
  const at::Tensor low = at::where(wavelength > context / p.low_freq_factor, kept / p.factor, between);
  return at::where(wavelength < context / p.high_freq_factor, kept, low);
}

// _compute_yarn_parameters (Peng et al. 2023): a ramp from kept to divided frequencies, between the dimension
// that turns beta_fast times within the original context and the one that turns beta_slow times.
at::Tensor yarn(const RopeParameters& p) {
  const double dim = static_cast<double>(p.head_dim);
  const auto dimension_of = [&](double rotations) {
    const double context = static_cast<double>(p.original_max_position_embeddings);
    return dim * std::log(context / (rotations * kTurn)) / (2 * std::log(p.theta));
  };
  double low = dimension_of(p.beta_fast), high = dimension_of(p.beta_slow);
  if (p.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  const at::Tensor divided_share =
      at::arange(p.head_dim / 2, at::kFloat).sub_(low).div_(high - low).clamp_(0, 1);
  const at::Tensor kept_share = 1 - divided_share;
  const at::Tensor powers = at::pow(p.theta, exponents(p));
  return (powers * p.factor).reciprocal() * (1 - kept_share) + powers.reciprocal() * kept_share;
}

}  // namespace

at::Tensor rope_frequencies(const RopeParameters& parameters) {
  switch (parameters.type) {
    case RopeType::standard:
    case RopeType::dynamic:
      return plain(parameters);
    case RopeType::linear:
      return plain(parameters).div_(parameters.factor);
    case RopeType::yarn:
      return yarn(parameters);
    case RopeType::llama3:
      return llama3(parameters);
  }
  return plain(parameters);
}

// _compute_dynamic_ntk_parameters
at::Tensor stretched_frequencies(const RopeParameters& p, int64_t length) {
  const double dim = static_cast<double>(p.head_dim);
  const at::Tensor stretch = at::scalar_tensor(length, at::kFloat) * p.factor / p.max_position_embeddings;
  const at::Tensor theta = p.theta * (stretch - (p.factor - 1)).pow(dim / (dim - 2));
  return theta.pow(exponents(p)).reciprocal_();
}

}  // namespace trainer
