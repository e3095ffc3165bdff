// Causal attention of packed samples on the CPU by this program's own products (gemm/product_tiles.h).
// LibTorch's operator makes a call of MKL or oneDNN for each product of a head and a few queries; where
// samples are short the calls take longer than the products.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trainer {

constexpr int64_t kMostBuiltinTokens = 1024;  // a block of scores then has 384 KB; backward has two or three
constexpr int64_t kBlockQueries = 96;         // at a time: a multiple of the rows of every kind of tiles

struct TokenRange {
  int64_t first, tokens;
};

// Tensors are [1, heads, tokens, head_dim] in fp32 or bf16, with head_dim contiguous; k, v and their
// gradients have kv_heads, which divides heads.
struct PackedHeads {
  at::Tensor q, k, v;
  std::vector<TokenRange> samples;  // those to compute: of kMostBuiltinTokens at most
  int64_t longest;                  // for the memory, at least that of the samples
  double scale;
};

// Returns whether the functions below take samples of kMostBuiltinTokens at most, and a few samples are work
// for all threads. That does not depend on the samples, so that one has the same bits in every row. On meta,
// the same for the planned device. Whether they should is decided by ops/cpu_products.h.
bool can_attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// Writes out = softmax(scale q k^T) v of each sample and head, and `log_sums` [1, heads, tokens], fp32: the
// logarithm of the sum that the softmax divides by. On meta, what `longest` needs is allocated.
void builtin_attention(const PackedHeads& in, const at::Tensor& out, const at::Tensor& log_sums);

// Inputs of backward, and the gradients that it writes.
struct AttentionGradients {
  at::Tensor g_out, out, log_sums;
  at::Tensor gq, gk, gv;
};
void builtin_attention_backward(const PackedHeads& in, const AttentionGradients& gradients);

}  // namespace trainer
