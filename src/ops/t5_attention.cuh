// What the kernels of T5's attention share, whatever the size of a head (t5_attention.cu).
#pragma once
#include "device/mma.cuh"
#include "ops/mask.cuh"

constexpr int kMostReach = 256;  // as in t5_attention.h
constexpr float kLog2E = 1.44269504f;

// [samples, rows, heads, head_dim], or packed [tokens, heads, head_dim]: strides in elements.
struct HeadRows {
  void* data;
  long long sample, row, head;
};

struct AttentionShape {
  long long all_queries;
  int heads, samples, queries, keys;     // rows of a sample; packed: of all samples
  const int *query_starts, *key_starts;  // packed: of each sample, and the end
  const long long* key_lengths;          // keys from there on are padding; nullptr: none are
  int causal, ahead;                     // causal: query i sees keys up to i + ahead
  float scale;
};

// The bias of distances key - query from -reach to reach; those beyond have that of the ends.
struct PositionBias {
  const bf16* weight;          // [buckets, heads]; nullptr: no bias
  const long long* bucket_of;  // [2 reach + 1]
  int reach, buckets;
};

// Queries: their keys for dropout, or nullptr; log2 of their sums, and sums of gradient times result, both
// [heads, all queries].
struct QueryFacts {
  const long long* row_keys;
  float *lse, *along;
};

// A sample's rows.
struct SampleRows {
  DEVICE SampleRows(const int* starts, int sample, int rows)
      : first(starts == nullptr ? 0 : starts[sample]),
        count(starts == nullptr ? rows : starts[sample + 1] - first),
        flat(starts == nullptr ? static_cast<long long>(sample) * rows : first) {}

  int first, count;  // in the tensor, after the sample's stride
  long long flat;    // the first, counted over all samples
};

// The tile of `size` rows that a block has. A packed sample has a block for each `size` rows, and sometimes
// one more: so the number of blocks follows from those of tokens and samples.
struct OwnTile {
  DEVICE OwnTile(const int* starts, int samples, int rows, int size) {
    const int block = static_cast<int>(blockIdx.x);
    if (starts == nullptr) {
      const int of_sample = (rows + size - 1) / size;
      sample = block / of_sample;
      first = block % of_sample * size;
      return;
    }
    int last = samples - 1;
    while (sample < last) {
      const int middle = (sample + last + 1) / 2;
      if (starts[middle] / size + middle <= block) {
        sample = middle;
      } else {
        last = middle - 1;
      }
    }
    first = (block - starts[sample] / size - sample) * size;
  }

  int sample = 0, first = 0;
};

// What a block works on: a tile of one sample's queries or keys, for the head blockIdx.y.
struct AttentionWork {
  DEVICE AttentionWork(const AttentionShape& shape, bool of_queries, int size)
      : tile(of_queries ? shape.query_starts : shape.key_starts, shape.samples,
             of_queries ? shape.queries : shape.keys, size),
        queries(shape.query_starts, tile.sample, shape.queries),
        key_rows(shape.key_starts, tile.sample, shape.keys),
        keys(key_rows.count),
        causal(shape.causal != 0),
        ahead(shape.ahead) {
    if (shape.key_lengths != nullptr && shape.key_lengths[tile.sample] < keys)
      keys = static_cast<int>(shape.key_lengths[tile.sample]);
  }

  DEVICE bf16* at(const HeadRows& x, const SampleRows& rows) const {
    return static_cast<bf16*>(x.data) + tile.sample * x.sample + blockIdx.y * x.head + rows.first * x.row;
  }
  // A query sees keys 0 .. the result - 1. Rows after the last query see what they would see.
  DEVICE int seen_by(int query) const {
    const int up_to = query + ahead + 1;
    return !causal || up_to > keys ? keys : up_to < 0 ? 0 : up_to;
  }
  DEVICE RowMask mask(int query, const long long* row_keys, const MaskOptions& options) const {
    const bool dropped = row_keys != nullptr && query < queries.count;
    const long long key = dropped ? row_keys[queries.flat + query] : 0;
    return RowMask(key + (static_cast<long long>(blockIdx.y) << 24), options);
  }
  // Of the head, in what QueryFacts has.
  DEVICE long long fact(int query, const AttentionShape& shape) const {
    return blockIdx.y * shape.all_queries + queries.flat + query;
  }

  OwnTile tile;
  SampleRows queries, key_rows;
  int keys;  // without padding
  bool causal;
  int ahead;
};

// A thread's place in the block's tile of sums: rows `row` and row + 8, columns `col` and the next of
// every 8.
struct SumsPlace {
  int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16, row = warp_row + lane / 4,
      col = lane % 4 * 2;
  static DEVICE int half(int i) { return i / 2; }
  DEVICE int row_of(int i) const { return row + i / 2 * 8; }
  DEVICE int col_of(int n, int i) const { return n * 8 + col + i % 2; }
};

// The bias of a head in shared memory, in units of log2.
struct BiasTable {
  DEVICE void fill(const PositionBias& bias, int heads) {
    if (bias.weight == nullptr) return;
    for (int i = threadIdx.x; i <= 2 * bias.reach; i += blockDim.x)
      of[i] = wide(bias.weight[bias.bucket_of[i] * heads + blockIdx.y]) * kLog2E;
  }
  // Those of distances first .. first + count - 1. A barrier comes before it and after it.
  DEVICE void copy(float* window, int first, int count, const PositionBias& bias) const {
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
      const int at = first + i + bias.reach, last = 2 * bias.reach;
      window[i] = bias.weight == nullptr ? 0.0f : of[at < 0 ? 0 : at > last ? last : at];
    }
  }

  float of[2 * kMostReach + 1];
};

