// Causal attention of packed samples on the CPU by this program's own products (nn/product_tiles.h).
// LibTorch's operator makes a call of MKL or oneDNN for each product of a head and a few queries; where
// samples are short the calls take longer than the products.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trainer {

// Samples of `lengths` tokens lie one after another. Tensors are [1, heads, tokens, head_dim] in fp32 or
// bf16, with head_dim contiguous; k, v and their gradients have kv_heads, which divides heads.
struct PackedHeads {
  at::Tensor q, k, v;
  const std::vector<int64_t>& lengths;
  double scale;
};

// Returns whether the functions below are the way: the program multiplies with its own kernels, all samples
// are short enough for a block of scores to stay in the second-level cache, and there is work for all
// threads. On meta, the same for the planned device.
bool suits_builtin_attention(const PackedHeads& in);

// Writes out = softmax(scale q k^T) v of each sample and head, and `sums` [1, heads, tokens], fp32: the
// logarithm of the sum that the softmax divides by.
void builtin_attention(const PackedHeads& in, const at::Tensor& out, const at::Tensor& sums);

// Writes the gradients, given that of out.
void builtin_attention_backward(const PackedHeads& in, const at::Tensor& gradient, const at::Tensor& out,
                                const at::Tensor& sums, const at::Tensor& gq, const at::Tensor& gk,
                                const at::Tensor& gv);

}  // namespace trainer
