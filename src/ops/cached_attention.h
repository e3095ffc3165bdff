// Attention of one new token a row to keys and values that are kept in slots (models/cache_rows.h).
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trainer {

// Keys and values [slots, kv_heads, positions, head_dim], in fp32 or bf16. Position p of a row lies in the
// slot that the row's table has for it: so rows share what they have in common, and nothing is copied when
// one is repeated, left out or replaced.
struct CachedKeys {
  at::Tensor k, v;
  // int32 [rows, 2 + positions, or more]: of each row how many positions it has, the new one included; the
  // slot that it writes to; the slot of each position.
  at::Tensor table;
  bool in_own_slot = false;  // all positions of a row lie in the slot that it writes to

  std::vector<at::Tensor> tensors() const { return {k, v, table}; }
};

struct CachedScores {
  double scale = 1.0, soft_cap = 0.0;  // c: scores become c tanh(scores / c); 0: no cap
  int64_t window = 0;                  // positions that a token sees, itself included; 0: all
  at::Tensor always{};  // int32 [rows]: so many at a row's beginning are seen with any window; undefined: 0
  at::Tensor bias{};    // fp32 [heads, distances]: added to the score of the key so far before the token

  std::vector<at::Tensor> tensors() const { return {always, bias}; }
};

// The keys and values of the new tokens, [rows, kv_heads, head_dim], which go to the last position of each
// row. Undefined: they are there already, or nothing is added (cross-attention).
struct NewKeys {
  at::Tensor k, v;

  std::vector<at::Tensor> tensors() const { return {k, v}; }
};

// q [rows, heads, head_dim]; heads is a multiple of kv_heads. Returns [rows, heads * head_dim]. The sums of a
// row are in an order that nothing but its length decides.
at::Tensor cached_attention(const at::Tensor& q, const NewKeys& added, const CachedKeys& keys,
                            const CachedScores& scores);
decltype(cached_attention) cached_attention_cpu, cached_attention_gpu;

}  // namespace trainer
