// T5's attention on the CPU by this program's own products: with a bias by distance, and dropout of the
// weights. Scores stay in the second-level cache, a block of queries of a head at a time; LibTorch would make
// a matrix of all of them between its batched products.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trainer {

// Shapes: B batch, H heads, D head_dim.
struct BiasedHeads {
  // A sample's place: its row of the batch, and its queries and keys in that row.
  struct Sample {
    int64_t row = 0, first_query = 0, queries = 0, first_key = 0, keys = 0;
  };
  BiasedHeads(at::Tensor of_q, at::Tensor of_k, at::Tensor of_v)
      : q(std::move(of_q)), k(std::move(of_k)), v(std::move(of_v)) {}

  at::Tensor q, k, v;  // [B, H, rows, D] in fp32 or bf16, with D contiguous
  std::vector<Sample> samples;
  int64_t most_queries = 0, most_keys = 0;  // of any sample, for the workspace
  at::Tensor buckets;                       // int64 [distances]: of the bias
  at::Tensor bias;                          // fp32 [H, distances], contiguous; undefined: none
  int64_t origin = 0;                       // where distance 0 is in them; key - query + origin: the others
  at::Tensor row_keys;                      // int64 [B, rows], contiguous: of the queries, for dropout
  bool causal = false;                      // query i of a sample sees its keys up to i + ahead
  int64_t ahead = 0;
  double scale = 1.0;
  int64_t dropout_key = 0;
  double p = 0.0;  // dropout's

  // The bias of distances in these buckets from a weight [buckets, H]; undefined: none.
  void set_bias(const at::Tensor& weight, const at::Tensor& of_distances, int64_t distance_0);
};

// Returns whether the functions below take samples of so many queries and keys at most, whose places and
// numbers are not looked at. On meta, the same for the planned device. Whether they should is decided by
// ops/cpu_products.h.
bool can_attend(const BiasedHeads& in);

// Writes out = dropout(softmax(scale q k^T + bias)) v of each sample and head. Rows of no sample stay.
void builtin_biased_attention(const BiasedHeads& in, const at::Tensor& out);

// Inputs of backward, and the gradients that it writes. Rows that belong to no sample are left as they are.
struct BiasedGradients {
  at::Tensor g_out, gq, gk, gv;
};
// The gradient of the bias by distance, summed sample by sample: fp32 [1, H, distances], and the bucket of
// each distance, int64 [distances]. Undefined if it is not wanted.
struct BiasSums {
  at::Tensor by_distance, buckets;
};
BiasSums builtin_biased_attention_backward(const BiasedHeads& in, const BiasedGradients& gradients,
                                           bool needs_bias);

}  // namespace trainer
