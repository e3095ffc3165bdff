#include "generation/sampling.h"

#include <ATen/ATen.h>

#include "base/random.h"

namespace trainer {
namespace {

// Uniform in (0, 1).
double uniform(uint64_t key) { return (static_cast<double>(mix64(key) >> 12) + 0.5) * 0x1p-52; }

}  // namespace

at::Tensor sample(const at::Tensor& scores, const std::vector<uint64_t>& keys) {
  at::Tensor thresholds = at::empty({static_cast<int64_t>(keys.size()), 1}, at::kDouble);
  for (size_t i = 0; i < keys.size(); i++) thresholds.mutable_data_ptr<double>()[i] = uniform(keys[i]);
  const at::Tensor cumulative = scores.softmax(-1).cumsum(-1, at::kDouble);
  const at::Tensor total = cumulative.narrow(1, cumulative.size(1) - 1, 1);
  return at::searchsorted(cumulative, thresholds.to(scores.device()) * total, /*out_int32=*/false,
                          /*right=*/true)
      .squeeze(1);
}

// The largest of log-probability + Gumbel noise (Vieira 2014, "Gumbel-max trick and weighted reservoir
// sampling").
at::Tensor sample_without_replacement(const at::Tensor& scores, int64_t count,
                                      const std::vector<uint64_t>& keys) {
  at::Tensor noise = at::empty(scores.sizes(), at::kFloat);
  for (int64_t row = 0; row < scores.size(0); row++) {
    float* to = noise.mutable_data_ptr<float>() + row * scores.size(1);
    for (int64_t i = 0; i < scores.size(1); i++)
      to[i] = static_cast<float>(
          -std::log(-std::log(uniform(derive(keys[static_cast<size_t>(row)], static_cast<uint64_t>(i))))));
  }
  return std::get<1>(at::topk(scores + noise.to(scores.device()), count));
}

}  // namespace trainer
