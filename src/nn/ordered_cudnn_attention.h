// Causal attention on Hopper where gradients are summed in a fixed order: cuDNN's forward pass, which takes
// half of FlashAttention's time, and cuDNN's own backward pass (nn/cudnn_ordered_backward.h), or where that
// does not suit FlashAttention's. No card has run either pair yet: before its first use it is compared with
// FlashAttention alone.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

namespace trainer {

struct Qkv {
  at::Tensor q;     // [batch, heads, seq, head_dim]
  at::Tensor k, v;  // [batch, groups, seq, head_dim]; heads is a multiple of groups
};

struct Attended {
  at::Tensor out;  // as q
  at::Tensor lse;  // fp32 [batch, heads, seq]: the natural logarithm of the sum of each query's weights
};

// A forward pass, and a backward pass that takes what it gives.
struct AttentionKernels {
  Attended (*forward)(const Qkv& in, double scale);
  Qkv (*backward)(const at::Tensor& grad, const Qkv& in, const Attended& of, double scale);
};

AttentionKernels cudnn_then_flash();
AttentionKernels flash_alone();
AttentionKernels cudnn_alone();

// What the memory plan of a GPU counts where cudnn_alone() may be used, on meta: as much as the larger of the
// two backward passes, because rows of other lengths take FlashAttention's.
AttentionKernels planned_cudnn_alone();

// Causal attention by these kernels, differentiable. Keeps q, k, v and what forward gives, as LibTorch's
// operators do. Returns `out`.
at::Tensor causal_attention(const Qkv& in, double scale, const AttentionKernels& by);

// The node of causal_attention() in the graph. RemadeHeads replaces what it keeps of q and k.
struct CausalAttentionBackward : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override;
  void release_variables() override;
  std::string name() const override { return "CausalAttentionBackward"; }

  torch::autograd::SavedVariable query_, key_, value_, out_, lse_;
  double scale = 1.0;
  AttentionKernels by{};
};

// Returns whether lengths like this one are few in a run. cuDNN prepares some 0.1 s for a shape that is new
// to a process. How often a shape came may not decide here, as in free order: a run would change its kernels
// in the middle, and one that is resumed would do so elsewhere and have other bits.
bool comes_in_few_lengths(int64_t length);

// Returns what differs between two pairs of kernels by more than bf16 explains; empty: nothing. They get
// random heads of this size, `group` heads of q to each of k.
std::string difference(const AttentionKernels& ours, const AttentionKernels& theirs, int64_t head_dim,
                       int64_t group, const at::TensorOptions& options);

// Returns which gradient of random heads changes when it is computed again; empty: none.
std::string change_when_repeated(const AttentionKernels& kernels, int64_t head_dim, int64_t group,
                                 const at::TensorOptions& options);

// Returns whether cudnn_then_flash() is used for these heads on a GPU where cuDNN may attend.
bool uses_ordered_cudnn(const Qkv& in, double scale);

// Returns whether cuDNN's ordered backward pass can be used for heads of these sizes, where cuDNN's forward
// pass is, by the sizes of a sample alone.
bool sizes_suit_cudnn_backward(const Qkv& in);

// Returns whether cudnn_alone() is used for these heads, where uses_ordered_cudnn().
bool uses_cudnn_backward(const Qkv& in, double scale);

}  // namespace trainer
