#include "nn/seen_keys.h"

#include <cmath>

#include <ATen/ATen.h>

namespace trainer {
namespace {

at::Tensor places(int64_t positions, const at::TensorOptions& options) {
  return at::arange(positions, options.dtype(at::kLong));
}

at::Tensor hiding(const at::Tensor& hidden, const at::TensorOptions& options) {
  return at::zeros(hidden.sizes(), options).masked_fill_(hidden, -INFINITY);
}

// bool [batch, 1, 1, positions]
at::Tensor padding_of(const at::Tensor& lengths, int64_t positions, const at::TensorOptions& options) {
  return places(positions, options).ge(lengths.view({-1, 1, 1, 1}));
}

}  // namespace

at::Tensor seen_mask(const Sight& sight, int64_t positions, const at::Tensor& lengths,
                     const at::TensorOptions& options) {
  const auto is_short = [&](int64_t side) { return side >= 0 && positions - 1 > side; };
  const bool hides_far = is_short(sight.before) || is_short(sight.after);
  if (!hides_far) return source_mask(lengths, positions, options);
  const at::Tensor key = places(positions, options), distance = key - key.unsqueeze(1);
  // Bitwise: the logical operators do not run on the meta device, where a plan is made.
  at::Tensor hidden = at::zeros({positions, positions}, options.dtype(at::kBool));
  if (is_short(sight.before)) hidden.bitwise_or_(distance.lt(-sight.before));
  if (is_short(sight.after)) hidden.bitwise_or_(distance.gt(sight.after));
  if (lengths.defined())
    hidden = hidden.bitwise_or(padding_of(lengths, positions, options).bitwise_and(distance.ne(0)));
  return hiding(hidden, options);
}

at::Tensor source_mask(const at::Tensor& lengths, int64_t positions, const at::TensorOptions& options) {
  return lengths.defined() ? hiding(padding_of(lengths, positions, options), options) : at::Tensor();
}

at::Tensor merged_mask(const Sight& sight, int64_t positions, const at::Tensor& lengths,
                       int64_t source_positions, const at::TensorOptions& options) {
  const at::Tensor own = seen_mask(sight, positions, {}, options),
                   source = source_mask(lengths, source_positions, options);
  if (!own.defined() && !source.defined()) return {};
  const int64_t batch = source.defined() ? source.size(0) : 1;
  const auto whole = [&](const at::Tensor& part, int64_t keys) {
    if (!part.defined()) return at::zeros({1, 1, 1, 1}, options).expand({batch, 1, positions, keys});
    return part.expand({batch, 1, positions, keys});
  };
  return at::cat({whole(own, positions), whole(source, source_positions)}, -1);
}

}  // namespace trainer
