#include "nn/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"

#include "device/target_device.h"
#include "ops/rotate_qk.h"

namespace trainer {
namespace {

using nlohmann::json;

bool is_set(const json& object, const char* key) { return object.contains(key) && !object[key].is_null(); }

double needed(const json& scaling, const std::string& type, const char* key) {
  if (!is_set(scaling, key)) {
    throw FormatError(concat("config.json: rope_scaling (rope_parameters).", key, ": is missing; rope type '",
                             type, "' needs it"));
  }
  return config_double(scaling, key, 0);
}

// The length before stretching: a key next to rope_scaling takes precedence over one inside it.
int64_t original_length(const json& config, const json& scaling, const RopeParameters& p) {
  const char* key = "original_max_position_embeddings";
  return config_size(config, key, config_size(scaling, key, p.max_position_embeddings));
}

double yarn_scale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

void read_yarn(const json& config, const json& scaling, RopeParameters& p) {
  p.original_max_position_embeddings = original_length(config, scaling, p);
  if (scaling.contains("factor") && scaling["factor"].is_null()) {
    p.factor = static_cast<double>(p.max_position_embeddings) /
               static_cast<double>(p.original_max_position_embeddings);
  } else {
    p.factor = needed(scaling, "yarn", "factor");
  }
  const double mscale = config_double(scaling, "mscale", 0),
               all = config_double(scaling, "mscale_all_dim", 0);
  const double inferred = mscale != 0 && all != 0 ? yarn_scale(p.factor, mscale) / yarn_scale(p.factor, all)
                                                  : yarn_scale(p.factor, 1);
  p.attention_factor = config_double(scaling, "attention_factor", inferred);
  // 0 counts as missing, and null for `truncate` counts as false
  if (const double beta = config_double(scaling, "beta_fast", 0); beta != 0) p.beta_fast = beta;
  if (const double beta = config_double(scaling, "beta_slow", 0); beta != 0) p.beta_slow = beta;
  p.truncate = config_bool(scaling, "truncate", !scaling.contains("truncate"));
}

void read_llama3(const json& config, const json& scaling, RopeParameters& p) {
  p.original_max_position_embeddings = original_length(config, scaling, p);
  p.factor = needed(scaling, "llama3", "factor");
  p.low_freq_factor = needed(scaling, "llama3", "low_freq_factor");
  p.high_freq_factor = needed(scaling, "llama3", "high_freq_factor");
}

std::vector<double> factors_of(const json& scaling, const char* key, int64_t rotary_dim) {
  const json list = scaling.value(key, json());
  const auto is_number = [](const json& entry) { return entry.is_number() && entry.get<double>() > 0; };
  if (!list.is_array() || std::ssize(list) != rotary_dim / 2 || !std::ranges::all_of(list, is_number)) {
    throw FormatError(concat("config.json: rope_scaling (rope_parameters).", key, ": must be a list of ",
                             rotary_dim / 2, " numbers above 0, one for each pair of rotated dimensions"));
  }
  return list.get<std::vector<double>>();
}

// _compute_longrope_parameters (Ding et al. 2024). `factor` is used only for the attention's factor.
void read_longrope(const json& config, const json& scaling, RopeParameters& p) {
  p.original_max_position_embeddings = original_length(config, scaling, p);
  p.short_factor = factors_of(scaling, "short_factor", p.rotary_dim);
  p.long_factor = factors_of(scaling, "long_factor", p.rotary_dim);
  const double original = static_cast<double>(p.original_max_position_embeddings);
  p.factor = config_double(scaling, "factor", static_cast<double>(p.max_position_embeddings) / original);
  const double inferred = p.factor <= 1 ? 1.0 : std::sqrt(1 + std::log(p.factor) / std::log(original));
  p.attention_factor = config_double(scaling, "attention_factor", inferred);
}

constexpr double kTurn = 2 * std::numbers::pi;

// [0, 2, ... rotary_dim - 2] / rotary_dim
at::Tensor exponents(const RopeParameters& p) {
  return at::arange(0, p.rotary_dim, 2, at::kFloat).div_(p.rotary_dim);
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
  const double dim = static_cast<double>(p.rotary_dim);
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
      at::arange(p.rotary_dim / 2, at::kFloat).sub_(low).div_(high - low).clamp_(0, 1);
  const at::Tensor kept_share = 1 - divided_share;
  const at::Tensor powers = at::pow(p.theta, exponents(p));
  return (powers * p.factor).reciprocal() * (1 - kept_share) + powers.reciprocal() * kept_share;
}

// _compute_proportional_rope_parameters: the first pairs turn as if all did.
at::Tensor proportional(const RopeParameters& p) {
  const int64_t pairs = p.rotary_dim / 2;
  const auto turned =
      static_cast<int64_t>(std::floor(p.turned_share * static_cast<double>(p.rotary_dim) / 2));
  return at::cat({plain(p).narrow(0, 0, turned), at::zeros({pairs - turned}, at::kFloat)}).div_(p.factor);
}

// _compute_longrope_parameters
at::Tensor divided(const RopeParameters& p, const std::vector<double>& factors) {
  return (at::tensor(factors, at::kFloat) * at::pow(p.theta, exponents(p))).reciprocal_();
}

// _compute_dynamic_ntk_parameters
at::Tensor stretched(const RopeParameters& p, int64_t length) {
  const double dim = static_cast<double>(p.rotary_dim);
  const at::Tensor stretch = at::scalar_tensor(length, at::kFloat) * p.factor / p.max_position_embeddings;
  const at::Tensor theta = p.theta * (stretch - (p.factor - 1)).pow(dim / (dim - 2));
  return theta.pow(exponents(p)).reciprocal_();
}

}  // namespace

RopeParameters rope_parameters(const json& config, int64_t rotary_dim) {
  RopeParameters p;
  p.rotary_dim = rotary_dim;
  p.theta = config_double(config, "rope_theta", p.theta);
  if (!is_set(config, "rope_scaling")) return p;
  const json& scaling = config["rope_scaling"];
  p.theta = config_double(scaling, "rope_theta", p.theta);
  const std::string type = config_string(scaling, "rope_type", "default");
  if (type == "default") return p;
  if (type != "linear") p.max_position_embeddings = config_size(config, "max_position_embeddings");
  if (type == "linear") {
    p.type = RopeType::linear;
    p.factor = needed(scaling, type, "factor");
  } else if (type == "dynamic") {
    p.type = RopeType::dynamic;
    p.factor = needed(scaling, type, "factor");
    if (rotary_dim <= 2) throw FormatError("config.json: rope type 'dynamic' needs a head_dim above 2");
  } else if (type == "yarn") {
    p.type = RopeType::yarn;
    read_yarn(config, scaling, p);
  } else if (type == "llama3") {
    p.type = RopeType::llama3;
    read_llama3(config, scaling, p);
  } else if (type == "longrope") {
    p.type = RopeType::longrope;
    read_longrope(config, scaling, p);
  } else {
    throw FormatError(
        concat("config.json: rope type '", type,
               "' is not supported (supported: default, linear, dynamic, yarn, llama3, longrope)"));
  }
  return p;
}

RopeParameters proportional_rope(const json& rope, int64_t rotary_dim, double theta) {
  RopeParameters p;
  p.type = RopeType::proportional;
  p.rotary_dim = rotary_dim;
  p.theta = config_double(rope, "rope_theta", theta);
  p.factor = config_double(rope, "factor", 1.0);
  p.turned_share = config_double(rope, "partial_rotary_factor", 1.0);
  if (p.turned_share < 0 || p.turned_share > 1) {
    throw FormatError(concat("config.json: rope_parameters: partial_rotary_factor ", p.turned_share,
                             " is not supported with rope type 'proportional'; it must be from 0 to 1"));
  }
  return p;
}

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
    case RopeType::longrope:
      return divided(parameters, parameters.short_factor);
    case RopeType::proportional:
      return proportional(parameters);
  }
  return plain(parameters);
}

bool long_for_rope(const RopeParameters& p, int64_t length) {
  return (p.type == RopeType::dynamic && length > p.max_position_embeddings) ||
         (p.type == RopeType::longrope && length > p.original_max_position_embeddings);
}

at::Tensor long_rope_frequencies(const RopeParameters& p, int64_t length) {
  return p.type == RopeType::dynamic ? stretched(p, length) : divided(p, p.long_factor);
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::optional<at::Tensor> maybe(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

// Without norms it keeps nothing but the tables. Values pass.
struct RotateQk : torch::autograd::Function<RotateQk> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                               const std::optional<at::Tensor>& v, const std::optional<at::Tensor>& q_weight,
                               const std::optional<at::Tensor>& k_weight, const at::Tensor& cos,
                               const at::Tensor& sin, double epsilon, bool plus_one) {
    const at::AutoDispatchBelowADInplaceOrView plain;  // values are no view to autograd
    const RotatedQk rotated = rotate_qk({q, k}, {q_weight, k_weight, epsilon, plus_one}, cos, sin);
    variable_list saved{cos, sin};
    if (q_weight) {
      saved.insert(saved.end(), {q, k, *q_weight, *k_weight, rotated.rstd.q, rotated.rstd.k});
    }
    ctx->save_for_backward(saved);
    ctx->saved_data["epsilon"] = epsilon;
    ctx->saved_data["plus_one"] = plus_one;
    variable_list out{rotated.out.q, rotated.out.k};
    if (v) out.push_back((q_weight ? *v : v->contiguous()).transpose(1, 2));
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    variable_list saved = ctx->get_saved_variables();
    const bool normed = saved.size() > 2;
    const bool has_values = grads.size() > 2;
    const size_t weights = has_values ? 3 : 2;  // LibTorch counts the inputs that are there
    const bool trained = normed && (ctx->needs_input_grad(weights) || ctx->needs_input_grad(weights + 1));
    saved.resize(8);
    const QkNorms norms{maybe(saved[4]), maybe(saved[5]), ctx->saved_data["epsilon"].toDouble(),
                        ctx->saved_data["plus_one"].toBool()};
    const QkGradients out =
        rotate_qk_backward({grads[0], grads[1]}, {saved[2], saved[3]}, {saved[6], saved[7]}, norms, saved[0],
                           saved[1], trained, has_values ? grads[2] : at::Tensor());
    return {out.in.q, out.in.k, out.v, out.weights.q, out.weights.k, {}, {}, {}, {}};
  }
};

// A layer's norms of queries and keys, for heads in this type.
QkNorms norms_of(const RmsNorm* q_norm, const RmsNorm* k_norm, at::ScalarType type) {
  if (q_norm == nullptr) return {};
  const NormFacts facts = q_norm->facts();
  return {q_norm->weight.as(type), k_norm->weight.as(type), facts.epsilon,
          facts.scale == NormScale::one_plus_weight};
}

}  // namespace

Rotary::Rotary(const RopeParameters& parameters)
    : parameters_(parameters), inverse_frequencies_(rope_frequencies(parameters)) {}

// Returns [rotary_dim / 2]; if sequences have frequencies of their own, [batch, 1, rotary_dim / 2], or in one
// row [1, seq, rotary_dim / 2].
at::Tensor Rotary::inverse_frequencies(const std::vector<int64_t>& lengths, bool in_one_row) const {
  const auto is_long = [&](int64_t length) { return long_for_rope(parameters_, length); };
  if (std::ranges::none_of(lengths, is_long)) return inverse_frequencies_;
  std::vector<at::Tensor> rows;
  for (const int64_t length : lengths) {
    rows.push_back(is_long(length) ? long_rope_frequencies(parameters_, length) : inverse_frequencies_);
    if (in_one_row) rows.back() = rows.back().expand({length, -1});
  }
  return in_one_row ? at::cat(rows).unsqueeze(0) : at::stack(rows).unsqueeze(1);
}

// The host would wait for every copy to a GPU, so the one that all batches use is kept.
at::Tensor Rotary::on_device(const at::Tensor& frequencies, at::Device device) const {
  if (target_of(device) != c10::kCUDA || !frequencies.is_same(inverse_frequencies_))
    return frequencies.to(device);
  if (!on_gpu_.defined() || on_gpu_.device() != device) on_gpu_ = frequencies.to(device);
  return on_gpu_;
}

Rotary::Tables Rotary::tables(const at::Tensor& positions, const std::vector<int64_t>& lengths,
                              const at::TensorOptions& options) const {
  const bool in_one_row = positions.dim() == 2 && positions.size(0) == 1 && lengths.size() > 1;
  const at::Tensor inverse = on_device(inverse_frequencies(lengths, in_one_row), options.device());
  at::Tensor angles = positions.to(at::kFloat).unsqueeze(-1) * inverse;  // [(batch,) seq, rotary_dim / 2]
  if (angles.dim() == 3) angles = angles.unsqueeze(1);                   // the same for all heads
  at::Tensor cos = angles.cos(), sin = angles.sin();
  if (parameters_.attention_factor != 1.0) {
    cos.mul_(parameters_.attention_factor);
    sin.mul_(parameters_.attention_factor);
  }
  const at::ScalarType type = c10::typeMetaToScalarType(options.dtype());
  return {cos.to(type), sin.to(type)};
}

std::pair<at::Tensor, at::Tensor> Rotary::apply(const at::Tensor& q, const at::Tensor& k,
                                                const RmsNorm* q_norm, const RmsNorm* k_norm,
                                                const Tables& tables) {
  const QkNorms norms = norms_of(q_norm, k_norm, q.scalar_type());
  if (!at::GradMode::is_enabled()) {
    const QkPair rotated = rotate_qk({q, k}, norms, tables.cos, tables.sin).out;
    return {rotated.q, rotated.k};
  }
  const variable_list out = RotateQk::apply(q, k, std::nullopt, norms.q_weight, norms.k_weight, tables.cos,
                                            tables.sin, norms.epsilon, norms.plus_one);
  return {out[0], out[1]};
}

AttentionHeads Rotary::apply_beside(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const RmsNorm* q_norm, const RmsNorm* k_norm, const Tables& tables) {
  const QkNorms norms = norms_of(q_norm, k_norm, q.scalar_type());
  const variable_list out = RotateQk::apply(q, k, std::optional(v), norms.q_weight, norms.k_weight,
                                            tables.cos, tables.sin, norms.epsilon, norms.plus_one);
  return {out[0], out[1], out[2]};
}

std::shared_ptr<RemadeHeads> Rotary::remade(const QkPair& heads, const at::Tensor& q, const at::Tensor& k,
                                            const RmsNorm& q_norm, const RmsNorm& k_norm,
                                            const Tables& tables) {
  const at::ScalarType type = q.scalar_type();
  const NormFacts facts = q_norm.facts();
  std::vector<at::Tensor> from{
      q.detach(), k.detach(), q_norm.weight.as(type).detach(), k_norm.weight.as(type).detach(),
      tables.cos, tables.sin};
  return std::make_shared<RemadeHeads>(heads, std::move(from), [facts](const std::vector<at::Tensor>& t) {
    const QkNorms norms{t[2], t[3], facts.epsilon, facts.scale == NormScale::one_plus_weight};
    return rotate_qk({t[0], t[1]}, norms, t[4], t[5]).out;
  });
}

}  // namespace trainer
