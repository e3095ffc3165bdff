// The gated delta rule (Yang, Kautz, Hatamizadeh 2024), as Qwen3-Next and Qwen3.5 compute it (transformers,
// torch_chunk_gated_delta_rule; flash-linear-attention, chunk_gated_delta_rule). A head has a state S
// [key_dim, value_dim], and each token changes and reads it:
//   S = e^decay S;  S += k^T (beta (v - k S));  out = q S
// with q and k divided by their 2-norm, and q by the root of key_dim. Samples begin with S = 0 and never see
// each other.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/token_runs.h"

namespace trainer {

struct DeltaShape {
  int64_t key_heads, value_heads, key_dim, value_dim;  // value_heads is a multiple of key_heads

  int64_t keys() const { return key_heads * key_dim; }
  int64_t values() const { return value_heads * value_dim; }
  int64_t columns() const { return 2 * keys() + values(); }
  int64_t group() const { return value_heads / key_heads; }  // value heads of each key head
};

struct DeltaInputs {
  at::Tensor qkv;    // [tokens, columns()]: all queries, keys, values
  at::Tensor decay;  // fp32 [tokens, value_heads]: logarithms, at most 0
  at::Tensor beta;   // fp32 [tokens, value_heads]
  // fp32 [runs, value_heads, key_dim, value_dim]: the states to begin with; undefined: 0. Has no gradient.
  at::Tensor first_states = {};

  std::vector<at::Tensor> tensors() const { return {qkv, decay, beta}; }
};

struct DeltaResult {
  at::Tensor out;  // [tokens, values()] in the type of qkv; 0 in padding
  // What backward needs: fp32 [n, value_heads, key_dim, value_dim], one state of each head in kKeptTokens
  // tokens of a run, without the first. On a GPU there are none.
  at::Tensor kept_states;
  at::Tensor last_states;  // as first_states; undefined unless wanted

  std::vector<at::Tensor> tensors() const { return {out, kept_states}; }
};

constexpr int64_t kDeltaChunk = 64;  // tokens whose effect on the state is computed at once
constexpr int64_t kKeptChunks = 8;   // backward makes the states in between again
constexpr int64_t kKeptTokens = kKeptChunks * kDeltaChunk;

// Computes in fp32; a GPU's kernels multiply bf16 in bf16, with sums, states and inverses in fp32. A run's
// numbers depend on the run alone.
DeltaResult gated_delta(const DeltaInputs& in, const DeltaShape& shape, const TokenRuns& runs,
                        bool wants_last_states);

// Returns the gradients of qkv, decay and beta; 0 in padding. Sums have one order. On a GPU only where
// takes_gated_delta(); elsewhere there LibTorch differentiates gated_delta_composed().
std::tuple<at::Tensor, at::Tensor, at::Tensor> gated_delta_backward(const at::Tensor& grad,
                                                                    const DeltaInputs& in,
                                                                    const at::Tensor& kept_states,
                                                                    const DeltaShape& shape,
                                                                    const TokenRuns& runs);

// Whether there are kernels for qkv there, and this shape.
bool takes_gated_delta(const at::Tensor& qkv, const DeltaShape& shape);

// The CPU's form of both: gated_delta_cpu.cpp, gated_delta_backward_cpu.cpp.
decltype(gated_delta) gated_delta_cpu;
decltype(gated_delta_backward) gated_delta_backward_cpu;
// The form for a GPU: gated_delta_kernels.cpp.
decltype(gated_delta) gated_delta_gpu;
decltype(gated_delta_backward) gated_delta_backward_gpu;
// LibTorch's operators, where there is no kernel. Differentiable where gradients are recorded.
decltype(gated_delta) gated_delta_composed;

}  // namespace trainer
