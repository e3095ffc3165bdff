#include "nn/attention.h"

#include <cmath>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "trainer/device/device.h"

#include "base/switches.h"
#include "device/target_device.h"
#include "memory/gpu_graph.h"
#include "nn/cudnn_backward_plan.h"
#include "nn/ordered_cudnn_attention.h"
#include "nn/planned_attention.h"

namespace trainer {

at::Tensor sliding_window_mask(int64_t queries, int64_t keys, int64_t window,
                               const at::TensorOptions& options) {
  const at::TensorOptions ints = options.dtype(at::kLong);
  const at::Tensor key = at::arange(keys, ints), query = at::arange(keys - queries, keys, ints).unsqueeze(1);
  const at::Tensor hidden = key.gt(query).logical_or_(key.le(query - window));
  return at::zeros({queries, keys}, options).masked_fill_(hidden, -INFINITY);
}

namespace {

// Returns whether q's sizes have come often. cuDNN prepares 0.1 s for a new shape and keeps what it has
// prepared; a call saves 0.4 ms. So a shape must come 100 times, the layers of some micro-batches, and only a
// few shapes can.
bool is_frequent(const at::Tensor& q) {
  constexpr int64_t calls = 100;
  constexpr size_t most_frequent = 32, most_counted = 4096;
  static std::mutex mutex;
  static std::map<std::vector<int64_t>, int64_t> counts;
  static std::set<std::vector<int64_t>> frequent;
  const std::lock_guard lock(mutex);
  const std::vector<int64_t> sizes = q.sizes().vec();
  if (frequent.contains(sizes)) return true;
  if (is_recording()) return false;  // as in the run before the recording
  if (frequent.size() == most_frequent || counts.size() == most_counted) return false;
  if (++counts[sizes] < calls) return false;
  frequent.insert(sizes);
  return true;
}

// TRAINER_CUDNN_ATTENTION: `off` leaves all to FlashAttention, `forward` the backward pass in a fixed order.
bool cudnn_attention_is(std::string_view value) { return switch_is(Switch::cudnn_attention, value); }

// Returns whether cuDNN may attend on Hopper, where it takes half of FlashAttention's time.
bool suits_cudnn(const at::Tensor& q, const std::optional<at::Tensor>& mask) {
  return !mask && q.scalar_type() == at::kBFloat16 && q.size(3) % 8 == 0 && q.size(3) <= 128 &&
         !cudnn_attention_is("off");
}

bool is_hopper(c10::Device gpu) { return compute_major(gpu) == 9; }

bool may_use_cudnn_backward() { return !cudnn_attention_is("forward") && has_backward_plans(); }

// The GPU of a plan is like the first here; it may not be here at all.
bool plans_cudnn_backward(const Qkv& in) {
  return target_of(in.q.device()) == c10::kCUDA && is_hopper(c10::kCUDA) && may_use_cudnn_backward() &&
         sizes_suit_cudnn_backward(in);
}

// LibTorch's operator; on meta, what it would be on the target.
at::Tensor fused(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                 const std::optional<at::Tensor>& mask, bool causal, double scale, bool grouped,
                 bool free_order) {
  const Qkv heads{q, k, v};
  const bool ordered_cudnn = !free_order && causal && suits_cudnn(q, mask);
  if (q.is_meta()) {
    if (ordered_cudnn && plans_cudnn_backward(heads))
      return causal_attention(heads, scale, planned_cudnn_alone());
    return planned_attention(q, k, v, mask, causal, scale, grouped);
  }
  if (q.is_cuda() && is_hopper(q.device())) {
    if (free_order && suits_cudnn(q, mask) && is_frequent(q)) {
      return std::get<0>(at::_scaled_dot_product_cudnn_attention(
          q, k, v, {}, /*compute_log_sumexp=*/true, 0.0, causal, /*return_debug_mask=*/false, scale));
    }
    if (ordered_cudnn && uses_ordered_cudnn(heads, scale)) {
      const bool all = may_use_cudnn_backward() && torch::autograd::compute_requires_grad(q, k, v) &&
                       uses_cudnn_backward(heads, scale);
      return causal_attention(heads, scale, all ? cudnn_alone() : cudnn_then_flash());
    }
  }
  return at::scaled_dot_product_attention(q, k, v, mask, 0.0, causal, scale, grouped);
}

}  // namespace

at::Tensor attention(const AttentionInputs& in) {
  const std::optional<at::Tensor> mask = in.mask.defined() ? std::optional(in.mask) : std::nullopt;
  const int64_t groups = in.q.size(1) / in.k.size(1);
  if (groups > 1 && in.q.size(2) == 1 && (!mask || mask->size(1) == 1)) {
    // Each head has a single query: the queries of a group can be treated as queries of one head.
    const at::Tensor q = in.q.unflatten(1, {-1, groups}).squeeze(3);
    return fused(q, in.k, in.v, mask, false, in.scale, false, false).flatten(1, 2).unsqueeze(2);
  }
  // With a mask and grouped heads, LibTorch would use a path that keeps the matrix; on a GPU also in fp32,
  // which FlashAttention does not take.
  const bool on_gpu = target_of(in.q.device()) == c10::kCUDA;
  const bool takes_groups =
      !mask && (!on_gpu || (in.q.scalar_type() == at::kBFloat16 && in.q.size(3) <= 256));
  if (groups == 1 || takes_groups) {
    const at::Tensor out = fused(in.q, in.k, in.v, mask, in.causal, in.scale, groups > 1, in.free_order);
    if (in.remade) in.remade->replace_in(out);
    return out;
  }
  return fused(in.q, in.k.repeat_interleave(groups, 1), in.v.repeat_interleave(groups, 1), mask, in.causal,
               in.scale, false, in.free_order);
}

}  // namespace trainer
