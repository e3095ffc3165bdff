#include "nn/ordered_cudnn_attention.h"

#include <array>
#include <exception>
#include <memory>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/memory/oom.h"

#include "base/text.h"

namespace trainer {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// cuDNN gives the sums as [batch, heads, seq, 1]; by TORCH_CUDNN_SDPA_AVOID_RECOMPILE they lie otherwise.
// They are asked for also where nothing is kept: without them it is another kernel, maybe with other bits,
// and a block computes the same whether it is recomputed or not.
Attended cudnn_forward(const Qkv& in, double scale) {
  const auto all =
      at::_scaled_dot_product_cudnn_attention(in.q, in.k, in.v, {}, /*compute_log_sumexp=*/true, 0.0,
                                              /*is_causal=*/true, /*return_debug_mask=*/false, scale);
  return {std::get<0>(all), std::get<1>(all).view(in.q.sizes().slice(0, 3)).contiguous()};
}

Attended flash_forward(const Qkv& in, double scale) {
  const auto all = at::_scaled_dot_product_flash_attention(in.q, in.k, in.v, 0.0, /*is_causal=*/true,
                                                           /*return_debug_mask=*/false, scale);
  return {std::get<0>(all), std::get<1>(all)};
}

// Without dropout it does not read the state of the random numbers.
Qkv flash_backward(const at::Tensor& grad, const Qkv& in, const Attended& of, double scale) {
  auto [q, k, v] = at::_scaled_dot_product_flash_attention_backward(grad, in.q, in.k, in.v, of.out, of.lse,
                                                                    {}, {}, in.q.size(2), in.k.size(2), 0.0,
                                                                    /*is_causal=*/true, {}, {}, scale);
  return {q, k, v};
}

// |a - b| / |b|, NaN where either has one.
double relative_to(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor of = b.to(at::kDouble);
  return (a.to(at::kDouble) - of).norm().div(of.norm()).item<double>();
}

}  // namespace

AttentionKernels cudnn_then_flash() { return {cudnn_forward, flash_backward}; }
AttentionKernels flash_alone() { return {flash_forward, flash_backward}; }

at::Tensor causal_attention(const Qkv& in, double scale, const AttentionKernels& by) {
  Attended of;
  {
    const at::NoGradGuard no_grad;
    of = by.forward(in, scale);
  }
  if (!torch::autograd::compute_requires_grad(in.q, in.k, in.v)) return of.out;
  const std::shared_ptr<CausalAttentionBackward> node(new CausalAttentionBackward(),
                                                      torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(in.q, in.k, in.v));
  node->query_ = SavedVariable(in.q, /*is_output=*/false);
  node->key_ = SavedVariable(in.k, /*is_output=*/false);
  node->value_ = SavedVariable(in.v, /*is_output=*/false);
  node->lse_ = SavedVariable(of.lse, /*is_output=*/false);
  node->scale = scale;
  node->by = by;
  torch::autograd::set_history(of.out, node);
  node->out_ = SavedVariable(of.out, /*is_output=*/true);
  return of.out;
}

variable_list CausalAttentionBackward::apply(variable_list&& grads) {
  const std::lock_guard lock(mutex_);
  if (!grads[0].defined()) return variable_list(3);
  const Qkv in{query_.unpack(), key_.unpack(), value_.unpack()};
  Qkv to = by.backward(grads[0], in, {out_.unpack(shared_from_this()), lse_.unpack()}, scale);
  return {std::move(to.q), std::move(to.k), std::move(to.v)};
}

void CausalAttentionBackward::release_variables() {
  const std::lock_guard lock(mutex_);
  for (SavedVariable* kept : {&query_, &key_, &value_, &out_, &lse_}) kept->reset_data();
}

// Rows are mostly as long as a run allows, a multiple of 256. Of rows as long as their longest sample, one in
// 256 is taken, so that the shapes of a whole run are prepared in seconds. Short rows gain too little.
bool comes_in_few_lengths(int64_t length) { return length >= 1024 && length % 256 == 0; }

std::string difference(const AttentionKernels& ours, const AttentionKernels& theirs, int64_t head_dim,
                       int64_t group, const at::TensorOptions& options) {
  constexpr int64_t batch = 2, groups = 2, length = 256;
  constexpr double of_bf16 = 1e-2, of_sums = 1e-3, scale = 0.125;  // the sums are in fp32
  const at::NoGradGuard no_grad;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(29);
  const auto heads = [&](int64_t count) {
    return at::randn({batch, length, count, head_dim}, generator, at::kFloat).to(options).transpose(1, 2);
  };
  const at::Tensor kv = heads(2 * groups);  // columns of one matrix, as projections give values
  const Qkv in{heads(groups * group), kv.narrow(1, 0, groups), kv.narrow(1, groups, groups)};
  const at::Tensor grad = heads(groups * group);
  const auto results = [&](const AttentionKernels& by) {
    const Attended of = by.forward(in, scale);
    const Qkv to = by.backward(grad, in, of, scale);
    return std::array{of.out, of.lse, to.q, to.k, to.v};
  };
  const auto a = results(ours), b = results(theirs);
  constexpr std::array names{"the result", "the sums of weights", "the gradient of q", "the gradient of k",
                             "the gradient of v"};
  for (size_t i = 0; i < names.size(); i++) {
    if (a[i].sizes() != b[i].sizes()) return concat(names[i], " has another shape");
    const double by = relative_to(a[i], b[i]);
    if (!(by <= (i == 1 ? of_sums : of_bf16))) return concat(names[i], " differs by ", by);
  }
  return "";
}

bool AskedOnce::works(const std::vector<int64_t>& key, const char* about,
                      const std::function<std::string()>& fault) {
  const std::lock_guard lock(mutex_);
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  std::string why;
  try {
    why = fault();
  } catch (const std::exception& error) {
    if (is_oom(error) || is_device_fault(error)) throw;
    why = first_line(error.what());
  }
  const std::string what = concat("cuDNN's forward pass of attention (", about, " ", shape_string(key), ")");
  why.empty() ? log::debug(what + " works")
              : log::warning(concat("FlashAttention is used instead of ", what, ": ", why));
  return known_[key] = why.empty();
}

// Of each kind of heads it asks whether results agree, and of each shape whether cuDNN takes it. Neither
// depends on what the run did before.
bool uses_ordered_cudnn(const Qkv& in, double scale) {
  static AskedOnce kinds, shapes;
  const int64_t device = in.q.device().index(), heads = in.q.size(1), groups = in.k.size(1),
                length = in.q.size(2), head_dim = in.q.size(3);
  if (length != in.k.size(2) || !comes_in_few_lengths(length)) return false;
  return kinds.works({device, head_dim, heads / groups}, "device, head size, heads in a group",
                     [&] {
                       return difference(cudnn_then_flash(), flash_alone(), head_dim, heads / groups,
                                         in.q.options().requires_grad(false));
                     }) &&
         shapes.works({device, in.q.size(0), heads, groups, length, head_dim, in.q.stride(2), in.k.stride(2),
                       in.v.stride(2)},
                      "device, samples, heads, groups, length, head size, strides of q, k and v", [&] {
                        const at::NoGradGuard no_grad;
                        cudnn_forward(in, scale);
                        return std::string();
                      });
}

}  // namespace trainer
