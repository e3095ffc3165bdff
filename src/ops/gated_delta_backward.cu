// The gradients of the gated delta rule (src/ops/gated_delta.h; g_x is the gradient of x). First forward's
// prepare_chunks and walk_chunks run again (gated_delta.cu). Then one kernel makes what does not depend on
// later chunks, one goes through the chunks from the last to the first with the gradient of the state, and
// one has each chunk for itself again. With M = A^-T g_N:
//   g_N = P^T g_out + (e^(b_last - b) K) g_S_next,  g_S = e^b_last g_S_next + (e^b Q)^T g_out - w^T g_N
//   g_v = beta M,  g_A = -M N^T,  g_P = g_out N^T
// Open: Element, kHeadDim (32, 64 or 128).
#include "ops/gated_delta.cuh"

constexpr int kSlice = kColumns<Element>;
constexpr int kSliceTiles = kSlice / 8;

using Rows = Matrix<Element, kChunk, kHeadDim>;
using RowsOfSlice = Matrix<Element, kChunk, kSlice>;
using StateSlice = Matrix<Element, kHeadDim, kSlice>;
using Pairs = Matrix<Element, kChunk, kChunk>;

// The gradient of the result at a chunk's first token.
DEVICE const Element* gradient_at(const GradientParts<Element>& to, const ChunkPlace& place) {
  return to.g_out + place.first * to.row + place.head * kHeadDim;
}

struct PairsMemory {
  Rows q;
  union {
    Rows k;  // until the pairs are made of it
    RowsOfSlice g;
  };
  Pairs pairs;
  ChunkDecays decays;
  float q_scales[kChunk], k_scales[kChunk];
};

// 128 threads. A block has a chunk and a value head: the part of g_N that goes through P, and the scales of
// queries.
KERNEL read_chunks_back(GRID_CONSTANT const DeltaCall call, GRID_CONSTANT const RunTable runs,
                        GRID_CONSTANT const GradientParts<Element> to) {
  PairsMemory& m = dynamic_shared<PairsMemory>();
  const ChunkPlace place = ChunkPlace::of_block(runs, call);
  const int row = static_cast<int>(threadIdx.x) / 32 * 16, own = static_cast<int>(threadIdx.x);
  fill_pairs<Element, kHeadDim>(m, call, place);
  if (own < kChunk) to.reads[place.number * kChunk + own] = m.q_scales[own] * expf(m.decays.b[own]);
  for (int column = 0; column < kHeadDim; column += kSlice) {
    __syncthreads();
    fill_matrix(m.g, gradient_at(to, place) + column, to.row, place.tokens);
    __syncthreads();
    float sums[kSliceTiles][4] = {};
    add_product(sums, transposed(m.pairs), row, plain(m.g), 0, row, kChunk);
    store_sums(sums, to.n + place.number * kChunk * kHeadDim + column, kHeadDim, row, 0, kChunk);
  }
}

struct WalkBackMemory {
  Rows keys;  // then queries
  Rows w;
  StateSlice state;
  RowsOfSlice n, g;
  float rest[kChunk], reads[kChunk];
};

// What a block needs of a chunk before it has the gradient of the state behind it.
struct NextChunkBack {
  DEVICE void fetch(const ChunkPlace& place, const DeltaCall& call, const ChunkParts<Element>& parts,
                    const GradientParts<Element>& to, int row, int column) {
    const long long matrix = place.number * kChunk * kHeadDim, token = place.number * kChunk + threadIdx.x;
    keys.fetch(place.key<kHeadDim, Element>(call), call.row, place.tokens);
    w.fetch(parts.w + matrix, kHeadDim, kChunk);
    load_sums(n, to.n + matrix + column, kHeadDim, row, 0, kChunk);
    load_sums(g, gradient_at(to, place) + column, to.row, row, 0, place.tokens);
    rest = threadIdx.x < kChunk ? parts.rest[token] : 0.0f;
    reads = threadIdx.x < kChunk ? to.reads[token] : 0.0f;
    kept = parts.kept[place.number];
  }
  Fetched<Element, kChunk, kHeadDim, kWalkThreads> keys, w;
  float n[kSliceTiles][4], g[kSliceTiles][4], rest, reads, kept;
};

// kWalkThreads. A block has a run, a value head and kSlice columns, as in walk_chunks. Completes g_N and
// writes the gradient of the state behind each chunk.
KERNEL walk_chunks_back(GRID_CONSTANT const DeltaCall call, GRID_CONSTANT const RunTable runs,
                        GRID_CONSTANT const ChunkParts<Element> parts,
                        GRID_CONSTANT const GradientParts<Element> to) {
  WalkBackMemory& m = dynamic_shared<WalkBackMemory>();
  constexpr int kSlices = kHeadDim / kSlice;
  const int run = static_cast<int>(blockIdx.x) / kSlices,
            column = static_cast<int>(blockIdx.x) % kSlices * kSlice;
  const int row = static_cast<int>(threadIdx.x) / 32 * 16, own = static_cast<int>(threadIdx.x);
  const int chunks = runs.tiles[run + 1] - runs.tiles[run];
  StateSums<kHeadDim, kSlice> state;
  NextChunkBack next;
  if (chunks > 0) next.fetch(ChunkPlace(runs, run, chunks - 1, call), call, parts, to, row, column);
  for (int chunk = chunks - 1; chunk >= 0; chunk--) {
    const ChunkPlace place(runs, run, chunk, call);
    Fetched<Element, kChunk, kHeadDim, kWalkThreads> queries;
    queries.fetch(place.query<kHeadDim, Element>(call), call.row, place.tokens);
    __syncthreads();
    next.keys.put(m.keys);
    next.w.put(m.w);
    if (own < kChunk) {
      m.rest[own] = next.rest;
      m.reads[own] = next.reads;
    }
    state.put(m.state);
    __syncthreads();
    write_matrix(m.state, to.states + place.number * kHeadDim * kHeadDim + column, kHeadDim, kHeadDim);
    float sums[kSliceTiles][4] = {};
    add_product(sums, plain(m.keys), row, plain(m.state), 0, 0, kHeadDim);
    each_sum(sums, row, 0, [&](float& sum, int i, int) { sum *= m.rest[i]; });
    UNROLL for (int n = 0; n < kSliceTiles; n++) {
      UNROLL for (int i = 0; i < 4; i++) sums[n][i] += next.n[n][i];
    }
    store_sums(sums, to.n + place.number * kChunk * kHeadDim + column, kHeadDim, row, 0, kChunk);
    each_sum(sums, row, 0, [&](float sum, int i, int c) { m.n.at[i][c] = narrow<Element>(-sum); });
    each_sum(next.g, row, 0, [&](float g, int i, int c) { m.g.at[i][c] = narrow<Element>(g * m.reads[i]); });
    __syncthreads();
    queries.put(m.keys);
    const float kept = next.kept;
    if (chunk > 0) next.fetch(ChunkPlace(runs, run, chunk - 1, call), call, parts, to, row, column);
    __syncthreads();
    state.scale(kept);
    state.add(m.keys, m.g);
    state.add(m.w, m.n);
  }
}

struct GradientMemory {
  Pairs pairs;  // A^-1, then pairs of tokens
  union {
    struct {
      StateSlice state, g_state;
      RowsOfSlice n, g, g_n, solved;
    };
    struct {
      Rows k, q;
    };
  };
  ChunkDecays decays;
  float q_scales[kChunk], k_scales[kChunk];
  float dots[2][5][kChunk];  // of either half of the columns
  float pair_sums[kChunk];
};
// Of rows with their gradients: those of values; those through a state of queries, keys, and keys that wrote;
// those of keys as rows of pairs, the states' included.
enum { kOfValue, kOfQuery, kOfKey, kOfWriter, kOfRow };

// 256 threads: warps 0 to 3 have the left half of all columns, 4 to 7 the right one. A block has a chunk and
// a value head.
struct GradientBlock {
  static constexpr int kTiles = kHeadDim / 16, kPairTiles = kChunk / 16;

  DEVICE GradientBlock(const RunTable& runs, const DeltaCall& call)
      : place(ChunkPlace::of_block(runs, call)),
        row(static_cast<int>(threadIdx.x) / 32 % 4 * 16),
        half(static_cast<int>(threadIdx.x) / 128) {}

  // Adds to what a thread has for row i, one of its two.
  DEVICE void add_to_row(float (&of_rows)[2], int i, float x) const {
    const bool is_upper = i < row + 8;
    of_rows[0] += is_upper ? x : 0.0f;
    of_rows[1] += is_upper ? 0.0f : x;
  }

  // The sums over this half of a row's columns, from those of a thread.
  DEVICE void put_dots(GradientMemory& m, int which, const float (&of_rows)[2]) const {
    UNROLL for (int i = 0; i < 2; i++) {
      const float sum = over_row_of_tile<Sum>(of_rows[i]);
      if (threadIdx.x % 4 == 0) m.dots[half][which][row + threadIdx.x % 32 / 4 + i * 8] = sum;
    }
  }
  DEVICE void put_dots(GradientMemory& m, int which, float (&sums)[kTiles][4], const Rows& with) const {
    float of_rows[2] = {};
    each_sum(sums, row, half * kHeadDim / 2,
             [&](float x, int i, int c) { add_to_row(of_rows, i, x * wide(with.at[i][c])); });
    put_dots(m, which, of_rows);
  }

  ChunkPlace place;
  int row, half;
  // Of the normalised query; of the key as the row of a pair, without beta; and as a column and a writer.
  float of_query[kTiles][4] = {}, of_row[kTiles][4] = {}, of_column[kTiles][4] = {};
  float of_a[kPairTiles][4] = {}, of_p[kPairTiles][4] = {};
};

// What goes through the states, slice by slice. Returns the thread's part of the product of S and g_S.
DEVICE float through_states(GradientMemory& m, GradientBlock& b, const DeltaCall& call,
                            const ChunkParts<Element>& parts, const GradientParts<Element>& to) {
  constexpr int kOwnTiles = kSlice / 16;
  const ChunkPlace& place = b.place;
  const long long of_states = place.number * kHeadDim * kHeadDim, of_rows = place.number * kChunk * kHeadDim;
  float of_kept = 0.0f, of_value[2] = {};
  for (int column = 0; column < kHeadDim; column += kSlice) {
    __syncthreads();
    fill_matrix(m.state, parts.states + of_states + column, kHeadDim, kHeadDim);
    fill_matrix(m.g_state, to.states + of_states + column, kHeadDim, kHeadDim);
    fill_matrix(m.n, parts.n + of_rows + column, kHeadDim, kChunk);
    fill_matrix(m.g_n, to.n + of_rows + column, kHeadDim, kChunk);
    fill_matrix(m.g, gradient_at(to, place) + column, to.row, place.tokens);
    __syncthreads();
    float solved[kOwnTiles][4] = {};
    add_product(solved, transposed(m.pairs), b.row, plain(m.g_n), b.half * kSlice / 2, b.row, kChunk);
    float values[kOwnTiles][4];
    load_sums(values, place.value<kHeadDim, Element>(call) + column, call.row, b.row, b.half * kSlice / 2,
              place.tokens);
    Element* const g_v =
        to.g_qkv + place.first * to.columns + (2 * call.key_heads + place.head) * kHeadDim + column;
    UNROLL for (int n = 0; n < kOwnTiles; n++) {
      UNROLL for (int i = 0; i < 4; i++) of_value[i / 2] += solved[n][i] * values[n][i];
    }
    each_sum(solved, b.row, b.half * kSlice / 2, [&](float& x, int i, int c) {
      m.solved.at[i][c] = narrow<Element>(x);
      x *= m.decays.beta[i];
    });
    store_sums(solved, g_v, to.columns, b.row, b.half * kSlice / 2, place.tokens);
    __syncthreads();
    add_product(b.of_a, plain(m.solved), b.row, transposed(m.n), b.half * kChunk / 2, 0, kSlice);
    add_product(b.of_p, plain(m.g), b.row, transposed(m.n), b.half * kChunk / 2, 0, kSlice);
    const int own = b.half * kHeadDim / 2;
    add_product(b.of_query, plain(m.g), b.row, transposed(m.state), own, 0, kSlice);
    add_product(b.of_row, plain(m.solved), b.row, transposed(m.state), own, 0, kSlice);
    add_product(b.of_column, plain(m.n), b.row, transposed(m.g_state), own, 0, kSlice);
    for (int i = threadIdx.x; i < kHeadDim * kSlice; i += blockDim.x)
      of_kept += wide(m.state.at[i / kSlice][i % kSlice]) * wide(m.g_state.at[i / kSlice][i % kSlice]);
  }
  b.put_dots(m, kOfValue, of_value);
  const float last = m.decays.b[kChunk - 1];
  const int own = b.half * kHeadDim / 2;
  each_sum(b.of_query, b.row, own, [&](float& x, int i, int) { x *= expf(m.decays.b[i]); });
  each_sum(b.of_row, b.row, own, [&](float& x, int i, int) { x *= -expf(m.decays.b[i]); });
  each_sum(b.of_column, b.row, own, [&](float& x, int i, int) { x *= m.decays.between(kChunk - 1, i); });
  return of_kept * expf(last);
}

// Fills m.pairs from the block's gradients of pairs.
template <class Body>
DEVICE void put_pairs(GradientMemory& m, const GradientBlock& b, float (&of)[GradientBlock::kPairTiles][4],
                      const Body& scaled) {
  __syncthreads();
  each_sum(of, b.row, b.half * kChunk / 2,
           [&](float x, int i, int j) { m.pairs.at[i][j] = narrow<Element>(scaled(x, i, j)); });
  __syncthreads();
}

// The gradients of b_i - b_j in all pairs, summed for each token. Each pair's is rounded once, for both of
// its tokens: what lies between them has to cancel in the sums from a token on.
DEVICE void sum_pairs(GradientMemory& m, GradientBlock& b) {
  __syncthreads();
  UNROLL for (int n = 0; n < GradientBlock::kPairTiles; n += 2) {  // few registers at a time
    const int col = b.half * kChunk / 2 + n * 8;
    float keys[2][4] = {}, queries[2][4] = {};
    add_product(keys, plain(m.k), b.row, transposed(m.k), col, 0, kHeadDim);
    add_product(queries, plain(m.q), b.row, transposed(m.k), col, 0, kHeadDim);
    UNROLL for (int tile = 0; tile < 2; tile++) {
      UNROLL for (int i = 0; i < 4; i++) {
        keys[tile][i] *= b.of_a[n + tile][i];
        queries[tile][i] *= b.of_p[n + tile][i];
      }
    }
    each_sum(keys, b.row, col, [&](float& x, int i, int) { x *= m.decays.beta[i] * m.k_scales[i]; });
    each_sum(queries, b.row, col, [&](float& x, int i, int) { x *= m.q_scales[i]; });
    UNROLL for (int tile = 0; tile < 2; tile++) {
      UNROLL for (int i = 0; i < 4; i++) keys[tile][i] += queries[tile][i];
    }
    each_sum(keys, b.row, col,
             [&](float x, int i, int j) { m.pairs.at[i][j] = narrow<Element>(x * m.k_scales[j]); });
  }
  __syncthreads();
  const int own = static_cast<int>(threadIdx.x);
  if (own >= kChunk) return;
  float sum = 0.0f;
  for (int i = 0; i < kChunk; i++) sum += wide(m.pairs.at[own][i]) - wide(m.pairs.at[i][own]);
  m.pair_sums[own] = sum;
}

// What goes through the products of queries and keys with each other.
DEVICE void through_pairs(GradientMemory& m, GradientBlock& b) {
  const int own = b.half * kHeadDim / 2, row = b.row;
  each_sum(b.of_a, row, b.half * kChunk / 2,
           [&](float& x, int i, int j) { x = i == j ? 0.0f : -x * m.decays.between(i, j); });
  each_sum(b.of_p, row, b.half * kChunk / 2, [&](float& x, int i, int j) { x *= m.decays.between(i, j); });
  sum_pairs(m, b);
  put_pairs(m, b, b.of_a, [&](float x, int, int j) { return x * m.k_scales[j]; });
  add_product(b.of_row, plain(m.pairs), row, plain(m.k), own, 0, row + 16);
  put_pairs(m, b, b.of_a, [&](float x, int i, int) { return x * m.decays.beta[i] * m.k_scales[i]; });
  add_product(b.of_column, transposed(m.pairs), row, plain(m.k), own, row, kChunk);
  put_pairs(m, b, b.of_p, [&](float x, int, int j) { return x * m.k_scales[j]; });
  add_product(b.of_query, plain(m.pairs), row, plain(m.k), own, 0, row + 16);
  put_pairs(m, b, b.of_p, [&](float x, int i, int) { return x * m.q_scales[i]; });
  add_product(b.of_column, transposed(m.pairs), row, plain(m.q), own, row, kChunk);
}

// The gradients of beta and of the decays, from the rows' products.
DEVICE void write_gate_gradients(GradientMemory& m, const ChunkPlace& place, const DeltaCall& call,
                                 float of_kept, const GradientParts<Element>& to) {
  const int i = static_cast<int>(threadIdx.x);
  const auto dot = [&](int which, int row) { return m.dots[0][which][row] + m.dots[1][which][row]; };
  float of_rest = 0.0f;
  if (i < kChunk) {
    const float scale = m.k_scales[i];
    of_rest = dot(kOfWriter, i) * scale;
    m.decays.decay[i] = m.pair_sums[i] + dot(kOfQuery, i) * m.q_scales[i] +
                        m.decays.beta[i] * dot(kOfKey, i) * scale - of_rest;
    if (i < place.tokens)
      to.g_beta[(place.first + i) * call.value_heads + place.head] =
          dot(kOfRow, i) * scale + dot(kOfValue, i);
  }
  float sum = over_block<Sum>(of_kept + of_rest);  // it has barriers
  if (i >= place.tokens) return;
  for (int later = place.tokens - 1; later >= i; later--) sum += m.decays.decay[later];
  to.g_decay[(place.first + i) * call.value_heads + place.head] = sum;
}

KERNEL chunk_gradients(GRID_CONSTANT const DeltaCall call, GRID_CONSTANT const RunTable runs,
                       GRID_CONSTANT const ChunkParts<Element> parts,
                       GRID_CONSTANT const GradientParts<Element> to) {
  GradientMemory& m = dynamic_shared<GradientMemory>();
  GradientBlock b(runs, call);
  const ChunkPlace& place = b.place;
  fill_matrix(m.pairs, parts.t + place.number * kChunk * kChunk, kChunk, kChunk);
  m.decays.fill(call, place);
  const float of_kept = through_states(m, b, call, parts, to);
  __syncthreads();
  fill_matrix(m.k, place.key<kHeadDim, Element>(call), call.row, place.tokens);
  fill_matrix(m.q, place.query<kHeadDim, Element>(call), call.row, place.tokens);
  __syncthreads();
  fill_scales(m.k_scales, m.k, 1.0f);
  fill_scales(m.q_scales, m.q, query_factor<kHeadDim>());
  b.put_dots(m, kOfQuery, b.of_query, m.q);
  b.put_dots(m, kOfKey, b.of_row, m.k);
  b.put_dots(m, kOfWriter, b.of_column, m.k);
  __syncthreads();
  through_pairs(m, b);
  b.put_dots(m, kOfRow, b.of_row, m.k);
  const long long of_rows = place.number * kChunk * kHeadDim;
  store_sums(b.of_query, to.queries + of_rows, kHeadDim, b.row, b.half * kHeadDim / 2, kChunk);
  each_sum(b.of_row, b.row, b.half * kHeadDim / 2, [&](float& x, int i, int) { x *= m.decays.beta[i]; });
  UNROLL for (int n = 0; n < GradientBlock::kTiles; n++) {
    UNROLL for (int i = 0; i < 4; i++) b.of_column[n][i] += b.of_row[n][i];
  }
  store_sums(b.of_column, to.keys + of_rows, kHeadDim, b.row, b.half * kHeadDim / 2, kChunk);
  __syncthreads();
  write_gate_gradients(m, place, call, of_kept, to);
}

// The gradient of x, of which y = scale x, scale = factor / |x|, went on: a warp has a row. `of` are the
// gradients of y from each value head of the group, `apart` from each other, and summed in their order.
DEVICE void through_norm(const Element* x, const float* of, long long apart, int group, float factor,
                         Element* to) {
  constexpr int kOwn = kHeadDim / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float value[kOwn], sum[kOwn] = {}, square = 0.0f, along = 0.0f;
  UNROLL for (int n = 0; n < kOwn; n++) {
    const int col = n * 32 + lane;
    value[n] = wide(x[col]);
    for (int head = 0; head < group; head++) sum[n] += of[head * apart + col];
    square += value[n] * value[n];
    along += sum[n] * value[n];
  }
  const float norm = over_warp<Sum>(square) + kNormEpsilon, scale = factor / sqrtf(norm);
  along = over_warp<Sum>(along) / norm;
  UNROLL for (int n = 0; n < kOwn; n++) to[n * 32 + lane] =
      narrow<Element>(scale * (sum[n] - along * value[n]));
}

// 128 threads. A block has a chunk and a key head, blockIdx.y: the gradients of its queries and keys.
KERNEL finish_gradients(GRID_CONSTANT const DeltaCall call, GRID_CONSTANT const RunTable runs,
                        GRID_CONSTANT const GradientParts<Element> to) {
  const int group = call.value_heads / call.key_heads, key_head = static_cast<int>(blockIdx.y);
  const int tile = static_cast<int>(blockIdx.x), run = run_of_tile(runs, tile);
  ChunkPlace place(runs, run, tile - runs.tiles[run], call);
  place.number += key_head * group - place.head;  // of the group's first value head
  place.head = key_head * group;
  const Element *const queries = place.query<kHeadDim, Element>(call), *const keys =
                                                                           place.key<kHeadDim, Element>(call);
  Element* const g_queries = to.g_qkv + place.first * to.columns + key_head * kHeadDim;
  const long long apart = kChunk * kHeadDim;
  for (int i = static_cast<int>(threadIdx.x) / 32; i < place.tokens; i += static_cast<int>(blockDim.x) / 32) {
    const long long from = place.number * apart + i * kHeadDim;
    Element* const g_query = g_queries + i * to.columns;
    through_norm(queries + i * call.row, to.queries + from, apart, group, query_factor<kHeadDim>(), g_query);
    through_norm(keys + i * call.row, to.keys + from, apart, group, 1.0f,
                 g_query + call.key_heads * kHeadDim);
  }
}
