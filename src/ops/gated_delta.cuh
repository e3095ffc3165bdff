// What the kernels of the gated delta rule share (gated_delta.cu, gated_delta_backward.cu), whatever the type
// and the size of a head. A chunk has 64 tokens, and a block 4 warps, which have 16 of its rows each.
#pragma once
#include "device/products.cuh"
#include "ops/run_table.cuh"

constexpr int kChunk = 64;
constexpr int kWalkThreads = 128;  // of a kernel that goes through the chunks of a sample
constexpr float kNormEpsilon = 1e-6f;
template <class T>
constexpr int kColumns = sizeof(T) == 2 ? 32 : 16;  // of a state, that a block has at a time

struct DeltaCall {
  const void* qkv;            // [tokens, columns]: all queries, keys, values; rows are `row` apart
  const float *decay, *beta;  // [tokens, value_heads]
  long long row;
  int key_heads, value_heads;
  int first_chunk;  // of the table's runs, among all chunks
};

// Numbers of every chunk and value head, for the kernels that come after the one that makes them. Matrices
// [64, head_dim] of T, but for t.
template <class T>
struct ChunkParts {
  T *u, *w;            // A^-1 (beta v) and A^-1 (beta e^b k): what tokens write is N = u - w S
  T* n;                // N
  T* states;           // [head_dim, head_dim]: S before the chunk
  T* t;                // A^-1 [64, 64], or nullptr
  float *rest, *kept;  // e^(b_last - b) / |k| of each token; e^b_last
};

// What the gradients' kernels pass on and write. Matrices [64, head_dim] of every chunk and value head, but
// for g_x, which are [tokens, ..].
template <class T>
struct GradientParts {
  const T* g_out;         // rows are `row` apart
  T *n, *states;          // of N, and [head_dim, head_dim] of the state behind the chunk
  float *queries, *keys;  // of the normalised ones, by value head
  float* reads;           // e^b / (|q| sqrt(head_dim)) of each token
  T* g_qkv;               // rows of `columns`
  float *g_decay, *g_beta;
  long long row, columns;
};

// The chunk of a block, for the value head blockIdx.y.
struct ChunkPlace {
  DEVICE ChunkPlace(const RunTable& runs, int run, int chunk_in_run, const DeltaCall& call) {
    head = static_cast<int>(blockIdx.y);
    const int done = chunk_in_run * kChunk, left = runs.tokens[run] - done;
    first = runs.first[run] + done;
    tokens = left < kChunk ? left : kChunk;
    const long long chunk = call.first_chunk + runs.tiles[run] + chunk_in_run;
    number = chunk * call.value_heads + head;
  }
  static DEVICE ChunkPlace of_block(const RunTable& runs, const DeltaCall& call) {
    const int tile = static_cast<int>(blockIdx.x), run = run_of_tile(runs, tile);
    return ChunkPlace(runs, run, tile - runs.tiles[run], call);
  }

  // The place in qkv of the first token's query, key and value.
  template <int dim, class T>
  DEVICE const T* query(const DeltaCall& call) const {
    const int key_head = head / (call.value_heads / call.key_heads);
    return static_cast<const T*>(call.qkv) + first * call.row + key_head * dim;
  }
  template <int dim, class T>
  DEVICE const T* key(const DeltaCall& call) const {
    return query<dim, T>(call) + call.key_heads * dim;
  }
  template <int dim, class T>
  DEVICE const T* value(const DeltaCall& call) const {
    return static_cast<const T*>(call.qkv) + first * call.row + (2 * call.key_heads + head) * dim;
  }

  int head, tokens;
  long long first, number;  // the first token's row; the number of the chunk and head among all
};

// The decays summed up to each token, and the betas; behind the last token they stay, and are 0.
struct ChunkDecays {
  // Ends with a barrier.
  DEVICE void fill(const DeltaCall& call, const ChunkPlace& place) {
    const int i = static_cast<int>(threadIdx.x);
    if (i < kChunk) {
      const bool is_one = i < place.tokens;
      const long long at = (place.first + i) * call.value_heads + place.head;
      decay[i] = is_one ? call.decay[at] : 0.0f;
      beta[i] = is_one ? call.beta[at] : 0.0f;
    }
    __syncthreads();
    if (i < kChunk) {
      float sum = 0.0f, rest = 0.0f;
      for (int j = 0; j <= i; j++) {
        const float next = sum + decay[j], added = next - sum;
        rest += (sum - (next - added)) + (decay[j] - added);
        sum = next;
      }
      b[i] = sum;
      b_rest[i] = rest;
    }
    __syncthreads();
  }
  // e^(b_row - b_col) up to the diagonal.
  DEVICE float between(int row, int col) const {
    return row < col ? 0.0f : expf((b[row] - b[col]) + (b_rest[row] - b_rest[col]));
  }

  // The sums are in two parts, as after strong decays the differences of one would be inexact.
  float decay[kChunk], beta[kChunk], b[kChunk], b_rest[kChunk];
};

// factor / |row| of each of a chunk's rows: two threads share one. No barrier behind it.
template <class T, int cols>
DEVICE void fill_scales(float* scales, const Matrix<T, kChunk, cols>& rows, float factor) {
  const int row = static_cast<int>(threadIdx.x) / 2, part = static_cast<int>(threadIdx.x) % 2;
  if (row >= kChunk) return;  // whole warps
  float sum = 0.0f;
  for (int col = part; col < cols; col += 2) sum += wide(rows.at[row][col]) * wide(rows.at[row][col]);
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  if (part == 0) scales[row] = factor / sqrtf(sum + kNormEpsilon);
}

template <int dim>
DEVICE float query_factor() {
  return 1.0f / sqrtf(static_cast<float>(dim));
}

// Makes m.pairs, Q K^T up to the diagonal with the scales and decays, of m.q, m.k, m.q_scales, m.k_scales and
// m.decays, which it fills. No barrier behind it.
template <class T, int dim, class Memory>
DEVICE void fill_pairs(Memory& m, const DeltaCall& call, const ChunkPlace& place) {
  const int row = static_cast<int>(threadIdx.x) / 32 * 16;
  fill_matrix(m.q, place.query<dim, T>(call), call.row, place.tokens);
  fill_matrix(m.k, place.key<dim, T>(call), call.row, place.tokens);
  m.decays.fill(call, place);
  fill_scales(m.q_scales, m.q, query_factor<dim>());
  fill_scales(m.k_scales, m.k, 1.0f);
  __syncthreads();
  float pairs[kChunk / 8][4] = {};
  add_product(pairs, plain(m.q), row, transposed(m.k), 0, 0, dim);
  each_sum(pairs, row, 0, [&](float sum, int i, int j) {
    m.pairs.at[i][j] = narrow<T>(sum * m.q_scales[i] * m.k_scales[j] * m.decays.between(i, j));
  });
}

// x = A^-1 for a unit lower triangular A, of which x holds what is below the diagonal: blocks of 16 rows by
// substitution, then pairs of blocks of 16 and of 32. A barrier comes before it and is behind it.
struct LowerInverse {
  DEVICE void invert() {
    const int thread = static_cast<int>(threadIdx.x), first = thread / 16 * 16, col = thread % 16;
    float of_col[16] = {};
    if (thread < kChunk) {
      UNROLL for (int i = 0; i < 16; i++) {
        float sum = i == col ? 1.0f : 0.0f;
        UNROLL for (int j = 0; j < 16; j++) {
          if (j < i) sum -= x[first + i][first + j] * of_col[j];
        }
        of_col[i] = sum;
      }
    }
    __syncthreads();  // all have read the blocks
    if (thread < kChunk) {
      UNROLL for (int i = 0; i < 16; i++) x[first + i][first + col] = of_col[i];
    }
    __syncthreads();
    join(16);
    join(32);
  }

  float x[kChunk][kChunk + 4];

 private:
  // Of two blocks of `size` on the diagonal, a and b, and c below a, c becomes -b^-1 c a^-1. The block right
  // of a is 0 and holds the product c a^-1 meanwhile.
  DEVICE void join(int size) {
    const int count = kChunk / 2 * size;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
      const int pair = i / (size * size) * 2 * size, row = i / size % size, col = i % size;
      float sum = 0.0f;
      for (int k = col; k < size; k++) sum += x[pair + size + row][pair + k] * x[pair + k][pair + col];
      x[pair + row][pair + size + col] = sum;
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
      const int pair = i / (size * size) * 2 * size, row = i / size % size, col = i % size;
      float sum = 0.0f;
      for (int k = 0; k <= row; k++)
        sum += x[pair + size + row][pair + size + k] * x[pair + k][pair + size + col];
      x[pair + size + row][pair + col] = -sum;
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
      const int pair = i / (size * size) * 2 * size;
      x[pair + i / size % size][pair + size + i % size] = 0.0f;
    }
    __syncthreads();
  }
};

// `slice` columns of a state [dim, dim], or of its gradient, in the registers of 4 warps: a warp has 16 of
// every 64 rows.
template <int dim, int slice>
struct StateSums {
  static constexpr int kParts = (dim + 63) / 64;

  // The first row of a part that this warp has; whether there is one.
  static DEVICE int row(int part) { return part * 64 + static_cast<int>(threadIdx.x) / 32 * 16; }
  static DEVICE bool has(int part) { return row(part) < dim; }

  template <class Body>
  DEVICE void each(const Body& body) {
    UNROLL for (int part = 0; part < kParts; part++) {
      if (has(part)) each_sum(of[part], row(part), 0, body);
    }
  }
  DEVICE void scale(float by) {
    UNROLL for (int part = 0; part < kParts; part++) {
      UNROLL for (int n = 0; n < slice / 8; n++) { UNROLL for (int i = 0; i < 4; i++) of[part][n][i] *= by; }
    }
  }
  template <class T>
  DEVICE void put(Matrix<T, dim, slice>& to) {
    each([&](float x, int i, int c) { to.at[i][c] = narrow<T>(x); });
  }
  // += x^T y, of a chunk's rows.
  template <class T>
  DEVICE void add(const Matrix<T, kChunk, dim>& x, const Matrix<T, kChunk, slice>& y) {
    UNROLL for (int part = 0; part < kParts; part++) {
      if (has(part)) add_product(of[part], transposed(x), row(part), plain(y), 0, 0, kChunk);
    }
  }

  float of[kParts][slice / 8][4] = {};
};
