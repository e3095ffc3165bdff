#include "nn/ordered_cudnn_attention.h"

#include <array>
#include <exception>
#include <memory>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "trainer/base/strings.h"

#include "memory/asked_once.h"
#include "nn/cudnn_backward_plan.h"
#include "nn/cudnn_ordered_backward.h"

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

Qkv planned_backward(const at::Tensor& grad, const Qkv& in, const Attended& of, double scale) {
  flash_backward(grad, in, of, scale);
  return cudnn_ordered_backward(grad, in, of, scale);
}

// |a - b| / |b|, NaN where either has one.
double relative_to(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor of = b.to(at::kDouble);
  return (a.to(at::kDouble) - of).norm().div(of.norm()).item<double>();
}

constexpr double kScaleOfRandom = 0.125;

// Heads of two samples, and a gradient of their result. k and v are columns of one matrix, as projections
// give them.
std::pair<Qkv, at::Tensor> random_case(int64_t length, int64_t head_dim, int64_t group,
                                       const at::TensorOptions& options) {
  constexpr int64_t batch = 2, groups = 2;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(29);
  const auto heads = [&](int64_t count) {
    return at::randn({batch, length, count, head_dim}, generator, at::kFloat).to(options).transpose(1, 2);
  };
  const at::Tensor kv = heads(2 * groups), q = heads(groups * group);
  return {{q, kv.narrow(1, 0, groups), kv.narrow(1, groups, groups)}, heads(groups * group)};
}

// Keys of AskedOnce.
constexpr auto kInstead = "FlashAttention", kNumbersOfAKind = "device, head size, heads in a group",
               kNumbersOfAShape = "device, samples, heads, groups, length, head size, strides of q, k and v";

std::vector<int64_t> kind_of(const Qkv& in) {
  return {in.q.device().index(), in.q.size(3), in.q.size(1) / in.k.size(1)};
}

std::vector<int64_t> shape_of(const Qkv& in, int64_t samples) {
  return {in.q.device().index(), samples,        in.q.size(1),   in.k.size(1),  in.q.size(2),
          in.q.size(3),          in.q.stride(2), in.k.stride(2), in.v.stride(2)};
}

}  // namespace

AttentionKernels cudnn_then_flash() { return {cudnn_forward, flash_backward}; }
AttentionKernels flash_alone() { return {flash_forward, flash_backward}; }
AttentionKernels cudnn_alone() { return {cudnn_forward, cudnn_ordered_backward}; }
AttentionKernels planned_cudnn_alone() { return {flash_forward, planned_backward}; }

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
  constexpr double of_bf16 = 1e-2, of_sums = 1e-3;  // the sums are in fp32
  const at::NoGradGuard no_grad;
  const auto [in, grad] = random_case(256, head_dim, group, options);
  const auto results = [&](const AttentionKernels& by) {
    const Attended of = by.forward(in, kScaleOfRandom);
    const Qkv to = by.backward(grad, in, of, kScaleOfRandom);
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

// Longer than those of difference(), so that a GPU has blocks that could add in another order.
std::string change_when_repeated(const AttentionKernels& kernels, int64_t head_dim, int64_t group,
                                 const at::TensorOptions& options) {
  constexpr int times = 4;
  const at::NoGradGuard no_grad;
  const auto [in, grad] = random_case(1024, head_dim, group, options);
  const Attended of = kernels.forward(in, kScaleOfRandom);
  const Qkv first = kernels.backward(grad, in, of, kScaleOfRandom);
  for (int i = 1; i < times; i++) {
    const Qkv again = kernels.backward(grad, in, of, kScaleOfRandom);
    if (!again.q.equal(first.q)) return "the gradient of q changes from call to call";
    if (!again.k.equal(first.k)) return "the gradient of k changes from call to call";
    if (!again.v.equal(first.v)) return "the gradient of v changes from call to call";
  }
  return "";
}

// Of each kind of heads it asks whether results agree, and of each shape whether cuDNN takes it. Neither
// depends on what the run did before.
bool uses_ordered_cudnn(const Qkv& in, double scale) {
  constexpr auto what = "cuDNN's forward pass of attention";
  static AskedOnce kinds(what, kNumbersOfAKind, kInstead), shapes(what, kNumbersOfAShape, kInstead);
  if (in.q.size(2) != in.k.size(2) || !comes_in_few_lengths(in.q.size(2))) return false;
  const int64_t head_dim = in.q.size(3), group = in.q.size(1) / in.k.size(1);
  return kinds.works(kind_of(in), [&] {
    return difference(cudnn_then_flash(), flash_alone(), head_dim, group,
                      in.q.options().requires_grad(false));
  }) && shapes.works(shape_of(in, in.q.size(0)), [&] {
    const at::NoGradGuard no_grad;
    cudnn_forward(in, scale);
    return std::string();
  });
}

bool sizes_suit_cudnn_backward(const Qkv& in) {
  const int64_t length = in.q.size(2);
  return length == in.k.size(2) && comes_in_few_lengths(length) && fits_cudnn_backward(in.q.size(1), length);
}

bool uses_cudnn_backward(const Qkv& in, double scale) {
  constexpr auto what = "cuDNN's backward pass of attention";
  static AskedOnce kinds(what, kNumbersOfAKind, kInstead), shapes(what, kNumbersOfAShape, kInstead);
  const int64_t head_dim = in.q.size(3), group = in.q.size(1) / in.k.size(1);
  const at::TensorOptions options = in.q.options().requires_grad(false);
  return sizes_suit_cudnn_backward(in) && kinds.works(kind_of(in), [&] {
    std::string why = why_no_backward_plans();
    if (why.empty()) why = difference(cudnn_alone(), flash_alone(), head_dim, group, options);
    return why.empty() ? change_when_repeated(cudnn_alone(), head_dim, group, options) : why;
  }) && shapes.works(shape_of(in, 1), [&] {
    prepare_cudnn_backward(in, scale);
    return std::string();
  });
}

}  // namespace trainer
