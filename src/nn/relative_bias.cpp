#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>

#include "device/target_device.h"
#include "nn/attention.h"

namespace trainer {

RelativeBias::RelativeBias(int64_t num_buckets, int64_t max_distance, int64_t num_heads, bool bidirectional)
    : weight({num_buckets, num_heads}),
      num_buckets_(num_buckets),
      max_distance_(max_distance),
      bidirectional_(bidirectional) {
  add("weight", weight);
}

// distance: key - query. Each near distance has its own bucket; far distances share buckets logarithmically.
// Computed in fp32 like the reference, so that the boundaries are the same.
int64_t RelativeBias::bucket(int64_t distance) const {
  int64_t buckets = num_buckets_, first = 0;
  if (bidirectional_) {
    buckets /= 2;
    if (distance > 0) first = buckets;
    distance = std::abs(distance);
  } else {
    distance = std::max<int64_t>(-distance, 0);
  }
  const int64_t exact = buckets / 2;
  if (distance < exact) return first + distance;
  const float ratio =
      std::log(static_cast<float>(distance) / static_cast<float>(exact)) /
      static_cast<float>(std::log(static_cast<double>(max_distance_) / static_cast<double>(exact)));
  const int64_t far = exact + static_cast<int64_t>(ratio * static_cast<float>(buckets - exact));
  return first + std::min(far, buckets - 1);
}

at::Tensor RelativeBias::buckets(int64_t queries, int64_t keys, int64_t offset, at::Device device) const {
  const int64_t first = -(queries - 1) - offset, count = queries + keys - 1;
  if (target_of(device) != c10::kCUDA) return range(first, count).to(device);
  const int64_t furthest = std::max(-first, first + count);
  if (!on_gpu_.empty() && on_gpu_.back().device() != device) on_gpu_.clear();
  if (on_gpu_.empty() || on_gpu_.back().size(0) < 2 * furthest) {
    const auto reach = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(furthest)));
    on_gpu_.push_back(range(-reach, 2 * reach).to(device));
  }
  const at::Tensor& known = on_gpu_.back();
  return known.narrow(0, known.size(0) / 2 + first, count);
}

at::Tensor RelativeBias::near_buckets(at::Device device) const {
  return buckets(max_distance_ + 1, max_distance_ + 1, 0, device);
}

at::Tensor RelativeBias::range(int64_t first, int64_t count) const {
  at::Tensor out = at::empty({count}, at::kLong);
  int64_t* to = out.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < count; i++) to[i] = bucket(first + i);
  return out;
}

at::Tensor RelativeBias::bias(int64_t queries, int64_t keys, int64_t offset, at::ScalarType type) const {
  const at::TensorOptions ints = weight.value.tensor().options().dtype(at::kLong).requires_grad(false);
  const at::Tensor distance =
      at::arange(keys, ints).unsqueeze(0) - at::arange(queries, ints).unsqueeze(1) + (queries - 1);
  const at::Tensor ids = buckets(queries, keys, offset, ints.device()).index({distance});  // [queries, keys]
  return at::embedding(weight.as(type), ids).permute({2, 0, 1}).unsqueeze(0);
}

}  // namespace trainer
