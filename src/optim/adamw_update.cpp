// The update of one tensor: our own loop on the CPU, LibTorch's operators elsewhere.
#include <bit>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "trainer/base/random.h"
#include "trainer/optim/adamw.h"

namespace trainer {
namespace {

// Coefficients in fp32, computed in double as torch.optim.AdamW does.
struct Coefficients {
  explicit Coefficients(const AdamwUpdate& u)
      : keep(static_cast<float>(1.0 - u.learning_rate * u.weight_decay)),
        beta1(static_cast<float>(u.beta1)),
        one_minus_beta1(static_cast<float>(1.0 - u.beta1)),
        beta2(static_cast<float>(u.beta2)),
        one_minus_beta2(static_cast<float>(1.0 - u.beta2)),
        step_size(
            static_cast<float>(u.learning_rate / (1.0 - std::pow(u.beta1, static_cast<double>(u.step))))),
        root_correction(static_cast<float>(std::sqrt(1.0 - std::pow(u.beta2, static_cast<double>(u.step))))),
        epsilon(static_cast<float>(u.epsilon)) {}
  float keep, beta1, one_minus_beta1, beta2, one_minus_beta2, step_size, root_correction, epsilon;
};

// 32 random bits of an element (Wellons' lowbias32 over the key's halves).
inline uint32_t random_bits(uint32_t low, uint32_t high, uint32_t index) {
  uint32_t h = index * 0x9e3779b1u + low;
  h ^= h >> 16;
  h *= 0x7feb352du;
  h ^= high;
  h ^= h >> 15;
  h *= 0x846ca68bu;
  return h ^ (h >> 16);
}

// fp32 -> T; bf16 rounds up with the probability of the part that is cut off. Infinities and NaN stay as they
// are.
template <class T>
inline T rounded(float value, uint32_t /*bits*/) {
  return static_cast<T>(value);
}
template <>
inline at::BFloat16 rounded<at::BFloat16>(float value, uint32_t bits) {
  const uint32_t pattern = std::bit_cast<uint32_t>(value);
  const bool finite = (pattern & 0x7f800000u) != 0x7f800000u;
  const uint32_t sum = finite ? pattern + (bits & 0xffffu) : pattern;
  return at::BFloat16(static_cast<uint16_t>(sum >> 16), at::BFloat16::from_bits());
}

template <bool with_master, class W, class G, class S>
__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"))) void update_range(
    W* weight, const G* gradient, S* exp_avg, S* exp_avg_sq, float* master, float scale,
    const Coefficients& c, uint64_t key, int64_t begin, int64_t end) {
  const uint32_t low = static_cast<uint32_t>(key), high = static_cast<uint32_t>(key >> 32);
  for (int64_t i = begin; i < end; i++) {
    const uint32_t index = static_cast<uint32_t>(i);
    const uint32_t bits = random_bits(low, high, index), more_bits = random_bits(high, low, index);
    const float g = static_cast<float>(gradient[i]) * scale;
    const float m0 = static_cast<float>(exp_avg[i]);
    const float m = m0 + (g - m0) * c.one_minus_beta1;
    const float v = static_cast<float>(exp_avg_sq[i]) * c.beta2 + g * g * c.one_minus_beta2;
    const float w = (with_master ? master[i] : static_cast<float>(weight[i])) * c.keep;
    const float next = w - c.step_size * (m / (std::sqrt(v) / c.root_correction + c.epsilon));
    exp_avg[i] = rounded<S>(m, more_bits);
    exp_avg_sq[i] = rounded<S>(v, more_bits >> 16);
    if constexpr (with_master) {
      master[i] = next;
      weight[i] = static_cast<W>(next);
    } else {
      weight[i] = rounded<W>(next, bits);
    }
  }
}

template <class W, class G, class S>
void update_tensor(at::Tensor& weight, const at::Tensor& gradient, at::Tensor& exp_avg,
                   at::Tensor& exp_avg_sq, at::Tensor& master, float scale, const AdamwUpdate& update) {
  const Coefficients coefficients(update);
  W* w = weight.mutable_data_ptr<W>();
  const G* g = gradient.const_data_ptr<G>();
  S* m = exp_avg.mutable_data_ptr<S>();
  S* v = exp_avg_sq.mutable_data_ptr<S>();
  float* p = master.defined() ? master.mutable_data_ptr<float>() : nullptr;
  at::parallel_for(0, weight.numel(), 1 << 15, [&](int64_t begin, int64_t end) {
    if (p != nullptr) {
      update_range<true>(w, g, m, v, p, scale, coefficients, update.key, begin, end);
    } else {
      update_range<false>(w, g, m, v, p, scale, coefficients, update.key, begin, end);
    }
  });
}

void update_cpu(at::Tensor& weight, const at::Tensor& gradient, at::Tensor& exp_avg, at::Tensor& exp_avg_sq,
                at::Tensor& master, const at::Tensor& gradient_scale, const AdamwUpdate& update) {
  const at::Tensor g = gradient.contiguous();
  const float scale = gradient_scale.item<float>();
  const auto with = [&]<class W, class G, class S>() {
    update_tensor<W, G, S>(weight, g, exp_avg, exp_avg_sq, master, scale, update);
  };
  const auto state = [&]<class W, class G>() {
    if (exp_avg.scalar_type() == at::kFloat) {
      with.template operator()<W, G, float>();
    } else {
      with.template operator()<W, G, at::BFloat16>();
    }
  };
  const auto grad = [&]<class W>() {
    if (g.scalar_type() == at::kFloat) {
      state.template operator()<W, float>();
    } else {
      state.template operator()<W, at::BFloat16>();
    }
  };
  if (weight.scalar_type() == at::kFloat) {
    grad.template operator()<float>();
  } else {
    grad.template operator()<at::BFloat16>();
  }
}

// Stochastic rounding with tensors: to.copy_(value) where `to` is bf16.
void write_rounded(at::Tensor& to, const at::Tensor& value, uint64_t key) {
  if (to.scalar_type() == at::kFloat) {
    to.copy_(value);
    return;
  }
  constexpr int64_t low32 = 0xffffffff;
  at::Tensor h = at::arange(value.numel(), value.options().dtype(at::kLong)).mul_(int64_t{0x9e3779b1});
  h.add_(static_cast<int64_t>(key & low32)).bitwise_and_(at::Scalar(low32));
  h.bitwise_xor_(at::bitwise_right_shift(h, at::Scalar(16)));
  h.mul_(int64_t{0x7feb352d})
      .bitwise_and_(at::Scalar(low32))
      .bitwise_xor_(at::Scalar(static_cast<int64_t>(key >> 32)));
  h.bitwise_xor_(at::bitwise_right_shift(h, at::Scalar(15)));
  h.mul_(int64_t{0x846ca68b}).bitwise_and_(at::Scalar(low32));
  h.bitwise_xor_(at::bitwise_right_shift(h, at::Scalar(16))).bitwise_and_(at::Scalar(0xffff));
  const at::Tensor cut =
      value.contiguous().view(at::kInt).view({-1}).add(h.to(at::kInt)).bitwise_and_(at::Scalar(~0xffff));
  to.copy_(at::where(value.isfinite(), cut.view(at::kFloat).view(value.sizes()), value));
}

// For devices without a kernel of ours: the same arithmetic with LibTorch's operators, nothing read on the
// host.
void update_composite(at::Tensor& weight, const at::Tensor& gradient, at::Tensor& exp_avg,
                      at::Tensor& exp_avg_sq, at::Tensor& master, const at::Tensor& gradient_scale,
                      const AdamwUpdate& update) {
  const Coefficients c(update);
  const at::Tensor g = gradient.to(at::kFloat) * gradient_scale;
  const at::Tensor m = at::lerp(exp_avg.to(at::kFloat), g, c.one_minus_beta1);
  const at::Tensor v = exp_avg_sq.to(at::kFloat).mul(c.beta2).addcmul_(g, g, c.one_minus_beta2);
  const at::Tensor denominator = v.sqrt().div_(c.root_correction).add_(c.epsilon);
  at::Tensor next =
      (master.defined() ? master : weight.to(at::kFloat)).mul(c.keep).addcdiv_(m, denominator, -c.step_size);
  write_rounded(exp_avg, m, derive(update.key, 1));
  write_rounded(exp_avg_sq, v, derive(update.key, 2));
  if (master.defined()) {
    master.copy_(next);
    weight.copy_(next);
  } else {
    write_rounded(weight, next, update.key);
  }
}

}  // namespace

void adamw_update(at::Tensor& weight, const at::Tensor& gradient, at::Tensor& exp_avg, at::Tensor& exp_avg_sq,
                  at::Tensor& master, const at::Tensor& gradient_scale, const AdamwUpdate& update) {
  const auto run = weight.is_cpu() ? update_cpu : update_composite;
  run(weight, gradient, exp_avg, exp_avg_sq, master, gradient_scale, update);
}

}  // namespace trainer
