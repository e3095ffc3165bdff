// The gated delta rule, forward (src/ops/gated_delta.h, whose names are used; gated_delta_chunk.h has the
// chunk's equations): one kernel makes what does not depend on the state, chunk by chunk at once, one goes
// through the chunks of a sample with the state, and one reads out. Queries and keys are multiplied as they
// are and the products scaled, so that normalising rounds nothing. Open: Element, kHeadDim (32, 64 or 128).
#include "ops/gated_delta.cuh"

constexpr int kSlice = kColumns<Element>;
constexpr int kTiles = kHeadDim / 8, kSliceTiles = kSlice / 8;

using Rows = Matrix<Element, kChunk, kHeadDim>;
using RowsOfSlice = Matrix<Element, kChunk, kSlice>;
using StateSlice = Matrix<Element, kHeadDim, kSlice>;
using Pairs = Matrix<Element, kChunk, kChunk>;

struct PrepareMemory {
  Rows rows;  // keys, then w; values, then u
  Pairs scaled;
  LowerInverse inverse;
  ChunkDecays decays;
  float scales[kChunk];
};

// result = (A^-1 with its columns multiplied) rows. A barrier comes before it.
template <class Scale>
DEVICE void solved_rows(PrepareMemory& m, Element* result, const Scale& scale) {
  const int row = static_cast<int>(threadIdx.x) / 32 * 16;
  for (int i = threadIdx.x; i < kChunk * kChunk; i += blockDim.x) {
    const int col = i % kChunk;
    m.scaled.at[i / kChunk][col] = narrow<Element>(m.inverse.x[i / kChunk][col] * scale(col));
  }
  __syncthreads();
  float sums[kTiles][4] = {};
  add_product(sums, plain(m.scaled), row, plain(m.rows), 0, 0, row + 16);
  __syncthreads();
  each_sum(sums, row, 0, [&](float sum, int i, int c) { m.rows.at[i][c] = narrow<Element>(sum); });
  __syncthreads();
  write_matrix(m.rows, result, kHeadDim, kChunk);
  __syncthreads();
}

// 128 threads. A block has a chunk and a value head.
KERNEL prepare_chunks(GRID_CONSTANT const DeltaCall call, GRID_CONSTANT const RunTable runs,
                      GRID_CONSTANT const ChunkParts<Element> parts) {
  PrepareMemory& m = dynamic_shared<PrepareMemory>();
  const ChunkPlace place = ChunkPlace::of_block(runs, call);
  const int row = static_cast<int>(threadIdx.x) / 32 * 16;
  const long long matrix = place.number * kChunk * kHeadDim;
  fill_matrix(m.rows, place.key<kHeadDim, Element>(call), call.row, place.tokens);
  m.decays.fill(call, place);
  fill_scales(m.scales, m.rows, 1.0f);
  __syncthreads();
  float pairs[kChunk / 8][4] = {};
  add_product(pairs, plain(m.rows), row, transposed(m.rows), 0, 0, kHeadDim);
  each_sum(pairs, row, 0, [&](float sum, int i, int j) {
    const float scale = m.decays.beta[i] * m.scales[i] * m.scales[j];
    m.inverse.x[i][j] = j < i ? scale * sum * m.decays.between(i, j) : 0.0f;
  });
  __syncthreads();
  m.inverse.invert();
  if (parts.t != nullptr) {
    for (int i = threadIdx.x; i < kChunk * kChunk; i += blockDim.x)
      parts.t[place.number * kChunk * kChunk + i] = narrow<Element>(m.inverse.x[i / kChunk][i % kChunk]);
  }
  const int own = static_cast<int>(threadIdx.x);
  const float last = m.decays.b[kChunk - 1];
  if (own < kChunk)
    parts.rest[place.number * kChunk + own] = m.decays.between(kChunk - 1, own) * m.scales[own];
  if (own == 0) parts.kept[place.number] = expf(last);
  solved_rows(m, parts.w + matrix,
              [&](int j) { return m.decays.beta[j] * expf(m.decays.b[j]) * m.scales[j]; });
  fill_matrix(m.rows, place.value<kHeadDim, Element>(call), call.row, place.tokens);
  solved_rows(m, parts.u + matrix, [&](int j) { return m.decays.beta[j]; });
}

// fp32 [runs, value_heads, head_dim, head_dim]: before the first and after the last chunk; or nullptr.
struct EndStates {
  const float* first;
  float* last;
};

struct WalkMemory {
  Rows w, k;
  StateSlice state;
  RowsOfSlice n;
  float rest[kChunk];
};

// What a block needs of a chunk before it has the state.
struct NextChunk {
  DEVICE void fetch(const ChunkPlace& place, const DeltaCall& call, const ChunkParts<Element>& parts, int row,
                    int column) {
    const long long matrix = place.number * kChunk * kHeadDim;
    w.fetch(parts.w + matrix, kHeadDim, kChunk);
    k.fetch(place.key<kHeadDim, Element>(call), call.row, place.tokens);
    load_sums(u, parts.u + matrix + column, kHeadDim, row, 0, kChunk);
    rest = threadIdx.x < kChunk ? parts.rest[place.number * kChunk + threadIdx.x] : 0.0f;
    kept = parts.kept[place.number];
  }
  Fetched<Element, kChunk, kHeadDim, kWalkThreads> w, k;
  float u[kSliceTiles][4], rest, kept;
};

// kWalkThreads. A block has a run, a value head and kSlice columns of its states: blockIdx.x counts slices,
// then runs. It is the only one to add to these columns, so that no sum has to be ordered.
KERNEL walk_chunks(GRID_CONSTANT const DeltaCall call, GRID_CONSTANT const RunTable runs,
                   GRID_CONSTANT const ChunkParts<Element> parts, EndStates ends) {
  WalkMemory& m = dynamic_shared<WalkMemory>();
  constexpr int kSlices = kHeadDim / kSlice;
  const int run = static_cast<int>(blockIdx.x) / kSlices,
            column = static_cast<int>(blockIdx.x) % kSlices * kSlice;
  const int row = static_cast<int>(threadIdx.x) / 32 * 16;
  const long long of_run =
      (static_cast<long long>(run) * call.value_heads + blockIdx.y) * kHeadDim * kHeadDim;
  const int chunks = runs.tiles[run + 1] - runs.tiles[run];
  StateSums<kHeadDim, kSlice> state;
  if (ends.first != nullptr)
    state.each([&](float& x, int i, int c) { x = ends.first[of_run + i * kHeadDim + column + c]; });
  NextChunk next;
  if (chunks > 0) next.fetch(ChunkPlace(runs, run, 0, call), call, parts, row, column);
  for (int chunk = 0; chunk < chunks; chunk++) {
    const ChunkPlace place(runs, run, chunk, call);
    __syncthreads();
    next.w.put(m.w);
    next.k.put(m.k);
    if (threadIdx.x < kChunk) m.rest[threadIdx.x] = next.rest;
    state.put(m.state);
    float sums[kSliceTiles][4];
    UNROLL for (int n = 0; n < kSliceTiles; n++) {
      UNROLL for (int i = 0; i < 4; i++) sums[n][i] = -next.u[n][i];
    }
    const float kept = next.kept;
    __syncthreads();
    if (chunk + 1 < chunks) next.fetch(ChunkPlace(runs, run, chunk + 1, call), call, parts, row, column);
    write_matrix(m.state, parts.states + place.number * kHeadDim * kHeadDim + column, kHeadDim, kHeadDim);
    add_product(sums, plain(m.w), row, plain(m.state), 0, 0, kHeadDim);
    each_sum(sums, row, 0, [&](float& sum, int, int) { sum = -sum; });
    store_sums(sums, parts.n + place.number * kChunk * kHeadDim + column, kHeadDim, row, 0, kChunk);
    each_sum(sums, row, 0, [&](float sum, int i, int c) { m.n.at[i][c] = narrow<Element>(sum * m.rest[i]); });
    __syncthreads();
    state.scale(kept);
    state.add(m.k, m.n);
  }
  if (ends.last == nullptr) return;
  state.each([&](float x, int i, int c) { ends.last[of_run + i * kHeadDim + column + c] = x; });
}

struct ReadMemory {
  Rows q;
  union {
    Rows k;  // until the pairs are made of it
    struct {
      StateSlice state;
      RowsOfSlice n;
    };
  };
  Pairs pairs;
  ChunkDecays decays;
  float q_scales[kChunk], k_scales[kChunk];
};

// 128 threads. out [tokens, values]. A block has a chunk and a value head.
KERNEL read_chunks(GRID_CONSTANT const DeltaCall call, GRID_CONSTANT const RunTable runs,
                   GRID_CONSTANT const ChunkParts<Element> parts, Element* out) {
  ReadMemory& m = dynamic_shared<ReadMemory>();
  const ChunkPlace place = ChunkPlace::of_block(runs, call);
  const int row = static_cast<int>(threadIdx.x) / 32 * 16;
  fill_pairs<Element, kHeadDim>(m, call, place);
  for (int column = 0; column < kHeadDim; column += kSlice) {
    __syncthreads();
    fill_matrix(m.state, parts.states + place.number * kHeadDim * kHeadDim + column, kHeadDim, kHeadDim);
    fill_matrix(m.n, parts.n + place.number * kChunk * kHeadDim + column, kHeadDim, kChunk);
    __syncthreads();
    float sums[kSliceTiles][4] = {};
    add_product(sums, plain(m.q), row, plain(m.state), 0, 0, kHeadDim);
    each_sum(sums, row, 0, [&](float& sum, int i, int) { sum *= m.q_scales[i] * expf(m.decays.b[i]); });
    add_product(sums, plain(m.pairs), row, plain(m.n), 0, 0, row + 16);
    Element* const to = out + (place.first * call.value_heads + place.head) * kHeadDim + column;
    store_sums(sums, to, static_cast<long long>(call.value_heads) * kHeadDim, row, 0, place.tokens);
  }
}
