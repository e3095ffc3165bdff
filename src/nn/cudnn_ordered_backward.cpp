#include "nn/cudnn_ordered_backward.h"

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "nn/cudnn_backward_plan.h"
#include "ops/attention_heads.h"

namespace trainer {
namespace {

int64_t row_of_heads(const at::Tensor& x) { return x.size(1) * x.size(3); }

// Returns whether x lies as BackwardOfOne needs it.
bool lies_by_position(const at::Tensor& x, bool dense) {
  const int64_t step = 16 / static_cast<int64_t>(x.element_size());
  const auto is_aligned = [step](int64_t elements) { return elements % step == 0; };
  return x.stride(3) == 1 && x.stride(1) == x.size(3) && is_aligned(x.stride(0)) && is_aligned(x.stride(2)) &&
         is_aligned(x.storage_offset()) && (!dense || x.stride(2) == row_of_heads(x));
}

at::Tensor laid_by_position(const at::Tensor& x, bool dense) {
  if (lies_by_position(x, dense)) return x;
  return x.transpose(1, 2).clone(at::MemoryFormat::Contiguous).transpose(1, 2);
}

Qkv sample_of(const Qkv& all, int64_t i) {
  return {all.q.narrow(0, i, 1), all.k.narrow(0, i, 1), all.v.narrow(0, i, 1)};
}

const BackwardPlan& plan_for(const Qkv& in, double scale) {
  const auto row = [](const at::Tensor& x) {
    return lies_by_position(x, /*dense=*/false) ? x.stride(2) : row_of_heads(x);
  };
  const BackwardSizes sizes{in.q.size(1), in.k.size(1), in.q.size(2), in.q.size(3),
                            row(in.q),    row(in.k),    row(in.v),    scale};
  using Key = std::pair<int, BackwardSizes>;
  // Never destroyed, as CUDA may end before. There are few, as lengths are.
  static auto& plans = *new std::map<Key, std::unique_ptr<BackwardPlan>>();
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::unique_ptr<BackwardPlan>& plan = plans[{in.q.device().index(), sizes}];
  if (!plan) {
    const c10::DeviceGuard on(in.q.device());
    plan = make_backward_plan(sizes, in.q.device().index());
  }
  return *plan;
}

}  // namespace

bool fits_cudnn_backward(int64_t heads, int64_t length) {
  constexpr int64_t most = int64_t{1} << 30;
  return heads * length * length * 2 <= most;
}

// Beside the matrices: the gradients of k and v of each head, where heads share them, and a sum a query.
// tests/nn/cudnn_ordered_backward_test.cpp holds it against cuDNN's plans.
int64_t cudnn_backward_bytes(int64_t heads, int64_t groups, int64_t length, int64_t head_dim) {
  const int64_t of_heads = heads == groups ? 0 : 2 * heads * length * head_dim * 2;
  return heads * length * length * 2 + of_heads + heads * length * 4;
}

void prepare_cudnn_backward(const Qkv& in, double scale) { plan_for(in, scale); }

Qkv backward_by_sample(const at::Tensor& grad, const Qkv& in, const Attended& of, const BackwardOfOne& one) {
  const Qkv from{laid_by_position(in.q, false), laid_by_position(in.k, false), laid_by_position(in.v, false)};
  const at::Tensor grads = laid_by_position(grad, true), outs = laid_by_position(of.out, true),
                   lse = of.lse.contiguous();
  Qkv to{empty_by_position(in.q), empty_by_position(in.k), empty_by_position(in.v)};
  for (int64_t i = 0; i < grad.size(0); i++) {
    one(grads.narrow(0, i, 1), sample_of(from, i), {outs.narrow(0, i, 1), lse.narrow(0, i, 1)},
        sample_of(to, i));
  }
  return to;
}

Qkv cudnn_ordered_backward(const at::Tensor& grad, const Qkv& in, const Attended& of, double scale) {
  const bool only_counts = grad.is_meta();
  const BackwardPlan* const plan = only_counts ? nullptr : &plan_for(in, scale);
  const int64_t bytes = only_counts
                            ? cudnn_backward_bytes(in.q.size(1), in.k.size(1), in.q.size(2), in.q.size(3))
                            : plan->workspace_bytes();
  const at::Tensor workspace = at::empty({bytes}, grad.options().dtype(at::kByte));
  void* const stream = only_counts
                           ? nullptr
                           : c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(grad.device()).native_handle();
  return backward_by_sample(
      grad, in, of, [&](const at::Tensor& g, const Qkv& x, const Attended& y, const Qkv& to) {
        if (only_counts) return;
        plan->run({x.q.const_data_ptr(), x.k.const_data_ptr(), x.v.const_data_ptr(), y.out.const_data_ptr(),
                   g.const_data_ptr(), y.lse.const_data_ptr(), to.q.mutable_data_ptr(),
                   to.k.mutable_data_ptr(), to.v.mutable_data_ptr(), workspace.mutable_data_ptr()},
                  stream);
      });
}

}  // namespace trainer
