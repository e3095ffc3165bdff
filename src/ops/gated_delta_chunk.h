// A chunk of the gated delta rule on the CPU, in fp32: what forward and backward share. For tokens i, j of a
// chunk with the summed decays b, S the state before it, and a unit lower triangular matrix A:
//   A_ij = beta_i (k_i k_j) e^(b_i - b_j) for j < i,  P_ij = (q_i k_j) e^(b_i - b_j) for j <= i
//   N = A^-1 beta (v - e^b (K S)),  out = e^b (Q S) + P N,  S_next = e^b_last S + (e^(b_last - b) K)^T N
// N is what the tokens write, each in view of what the others wrote. Rows and columns are padded with zeros.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include <ATen/ATen.h>

#include "ops/gated_delta.h"
#include "ops/small_products.h"

namespace trainer {
namespace {

constexpr float kNormEpsilon = 1e-6f;
constexpr int64_t kChunkRow = row_distance(kDeltaChunk);

// Pieces of one thread's memory.
class DeltaMemory {
 public:
  // Counts instead of giving if there is no memory.
  explicit DeltaMemory(float* next) : next_(next) {}
  float* take(int64_t count) {
    float* const out = next_;
    taken_ += count;
    if (next_ != nullptr) next_ += count;
    return out;
  }
  int64_t taken() const { return taken_; }

 private:
  float* next_;
  int64_t taken_ = 0;
};

// The chunk's queries and keys of one key head.
struct ChunkKeys {
  ChunkKeys(DeltaMemory& memory, const DeltaShape& shape)
      : row(row_distance(shape.key_dim)),
        k(memory.take(kDeltaChunk * row)),
        q(memory.take(kDeltaChunk * row)),
        kt(memory.take(padded_columns(shape.key_dim) * kChunkRow)),
        kk(memory.take(kDeltaChunk * kChunkRow)),
        qk(memory.take(kDeltaChunk * kChunkRow)),
        k_scale(memory.take(kDeltaChunk)),
        q_scale(memory.take(kDeltaChunk)) {}

  int64_t row;                   // distance of rows in k and q
  float *k, *q;                  // [tokens, key_dim]
  float* kt;                     // k^T
  float *kk, *qk;                // k k^T, q k^T
  float *k_scale, *q_scale;      // k and q were multiplied by these
  int64_t tokens = 0, rows = 0;  // rows: with padding
};

// What one value head makes of it.
struct ChunkValues {
  ChunkValues(DeltaMemory& memory, const DeltaShape& shape)
      : row(row_distance(shape.value_dim)),
        v(memory.take(kDeltaChunk * row)),
        ks(memory.take(kDeltaChunk * row)),
        qs(memory.take(kDeltaChunk * row)),
        n(memory.take(kDeltaChunk * row)),
        d(memory.take(kDeltaChunk * kChunkRow)),
        a(memory.take(kDeltaChunk * kChunkRow)),
        p(memory.take(kDeltaChunk * kChunkRow)),
        kd(memory.take(kDeltaChunk * row_distance(shape.key_dim))),
        beta(memory.take(kDeltaChunk)),
        decayed(memory.take(kDeltaChunk)),
        rest(memory.take(kDeltaChunk)) {}

  int64_t row;                   // distance of rows in v, ks, qs, n
  float *v, *ks, *qs, *n;        // [tokens, value_dim]
  float *d, *a, *p;              // e^(b_i - b_j); A without its diagonal; P
  float* kd;                     // e^(b_last - b) K
  float *beta, *decayed, *rest;  // of each token; e^b; e^(b_last - b)
  float last = 1.0f;             // e^b_last
  double b[kDeltaChunk] = {};
};

// Clears a row from column `first` on, padding included, so that nothing of an earlier run is left there.
TRAINER_INLINE void clear_padding(float* row, int64_t first, int64_t columns) {
  for (int64_t c = first; c < padded_columns(columns); c++) row[c] = 0.0f;
}

// Copies rows into fp32 and divides each by its norm; `factor` is on top. The rest of the buffer is 0.
template <class T>
TRAINER_VECTORISED void load_unit_rows(const T* __restrict__ from, int64_t from_row, float* __restrict__ to,
                                       int64_t to_row, float* __restrict__ scales, int64_t tokens,
                                       int64_t rows, int64_t columns, float factor) {
  for (int64_t t = 0; t < tokens; t++) {
    const T* const x = from + t * from_row;
    float* const y = to + t * to_row;
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < columns; c++) {
      const float value = static_cast<float>(x[c]);
      sum += value * value;
    }
    const float scale = factor / std::sqrt(sum + kNormEpsilon);
    scales[t] = scale;
    for (int64_t c = 0; c < columns; c++) y[c] = static_cast<float>(x[c]) * scale;
    clear_padding(y, columns, columns);
  }
  for (int64_t t = tokens; t < rows; t++) clear_padding(to + t * to_row, 0, columns);
}

template <class T>
TRAINER_VECTORISED void load_rows(const T* __restrict__ from, int64_t from_row, float* __restrict__ to,
                                  int64_t to_row, int64_t tokens, int64_t rows, int64_t columns) {
  for (int64_t t = 0; t < tokens; t++) {
    for (int64_t c = 0; c < columns; c++) to[t * to_row + c] = static_cast<float>(from[t * from_row + c]);
    clear_padding(to + t * to_row, columns, columns);
  }
  for (int64_t t = tokens; t < rows; t++) clear_padding(to + t * to_row, 0, columns);
}

template <class T>
TRAINER_VECTORISED void store_rows(const float* __restrict__ from, int64_t from_row, T* __restrict__ to,
                                   int64_t to_row, int64_t tokens, int64_t columns) {
  for (int64_t t = 0; t < tokens; t++) {
    for (int64_t c = 0; c < columns; c++) to[t * to_row + c] = static_cast<T>(from[t * from_row + c]);
  }
}

// d = e^(b_i - b_j) up to the diagonal, a = beta_i kk d below it, p = qk d.
TRAINER_VECTORISED void weigh_pairs(const double* __restrict__ b, const float* __restrict__ beta,
                                    const float* __restrict__ kk, const float* __restrict__ qk,
                                    float* __restrict__ d, float* __restrict__ a, float* __restrict__ p,
                                    int64_t rows) {
  for (int64_t i = 0; i < rows; i++) {
    const int64_t at = i * kChunkRow;
    for (int64_t j = 0; j < rows; j++) {
      const float x = static_cast<float>(b[i] - b[j]);
      const float e = fast_exp(x > 0.0f ? 0.0f : x);
      const float kept = j <= i ? e : 0.0f;
      d[at + j] = kept;
      a[at + j] = j < i ? beta[i] * kk[at + j] * kept : 0.0f;
      p[at + j] = qk[at + j] * kept;
    }
  }
}

// n = beta (v - decayed ks)
TRAINER_VECTORISED void unread_values(const ChunkValues& c, const float* __restrict__ v,
                                      const float* __restrict__ ks, float* __restrict__ n, int64_t rows) {
  for (int64_t i = 0; i < rows; i++) {
    const float beta = c.beta[i], decayed = c.decayed[i];
    for (int64_t x = 0; x < c.row - kSmallColumns; x++)
      n[i * c.row + x] = beta * (v[i * c.row + x] - decayed * ks[i * c.row + x]);
  }
}

TRAINER_VECTORISED void scale_rows(const float* __restrict__ from, const float* __restrict__ by,
                                   float* __restrict__ to, int64_t row, int64_t rows) {
  for (int64_t i = 0; i < rows; i++) {
    for (int64_t x = 0; x < row - kSmallColumns; x++) to[i * row + x] = from[i * row + x] * by[i];
  }
}

TRAINER_VECTORISED void scale_all(float* x, float by, int64_t count) {
  for (int64_t i = 0; i < count; i++) x[i] *= by;
}

// x_i -= sum of a_ij x_j for `first` <= j < i, for 16 rows: forward substitution.
TRAINER_VECTORISED void substitute(const float* __restrict__ a, float* x, int64_t row, int64_t first) {
  for (int64_t i = first + 1; i < first + kSmallColumns; i++) {
    float* const to = x + i * row;
    for (int64_t j = first; j < i; j++) {
      const float factor = a[i * kChunkRow + j];
      const float* const from = x + j * row;
#pragma GCC ivdep
      for (int64_t c = 0; c < row - kSmallColumns; c++) to[c] -= factor * from[c];
    }
  }
}

// x = A^-1 x
inline void solve_lower(const float* a, float* x, int64_t row, int64_t rows) {
  for (int64_t first = 0; first < rows; first += kSmallColumns) {
    small_product<Into::subtract>({a + first * kChunkRow, kChunkRow, 1}, x, row, x + first * row, row,
                                  {kSmallColumns, row - kSmallColumns, first});
    substitute(a, x, row, first);
  }
}

// The places of a head's numbers in the tensors.
template <class T>
struct DeltaPlaces {
  const T* qkv;
  const float *decay, *beta;
  DeltaShape shape;

  const T* query(int64_t token, int64_t head) const {
    return qkv + token * shape.columns() + head * shape.key_dim;
  }
  const T* key(int64_t token, int64_t head) const { return query(token, head) + shape.keys(); }
  const T* value(int64_t token, int64_t head) const {
    return qkv + token * shape.columns() + 2 * shape.keys() + head * shape.value_dim;
  }
};

template <class T>
void read_keys(const DeltaPlaces<T>& in, ChunkKeys& c, int64_t head, int64_t first, int64_t tokens) {
  const DeltaShape& s = in.shape;
  c.tokens = tokens;
  c.rows = padded_columns(tokens);
  const auto factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.key_dim)));
  load_unit_rows(in.key(first, head), s.columns(), c.k, c.row, c.k_scale, tokens, c.rows, s.key_dim, 1.0f);
  load_unit_rows(in.query(first, head), s.columns(), c.q, c.row, c.q_scale, tokens, c.rows, s.key_dim,
                 factor);
  const int64_t width = padded_columns(s.key_dim);
  transpose_small(c.k, c.row, c.kt, kChunkRow, c.rows, width);
  for (int64_t i = 0; i < c.rows; i += kSmallColumns) {  // up to the diagonal
    const SmallSize size{kSmallColumns, i + kSmallColumns, width};
    small_product<Into::set>({c.k + i * c.row, c.row, 1}, c.kt, kChunkRow, c.kk + i * kChunkRow, kChunkRow,
                             size);
    small_product<Into::set>({c.q + i * c.row, c.row, 1}, c.kt, kChunkRow, c.qk + i * kChunkRow, kChunkRow,
                             size);
  }
}

template <class T>
void read_values(const DeltaPlaces<T>& in, const ChunkKeys& keys, ChunkValues& c, int64_t head,
                 int64_t first) {
  const DeltaShape& s = in.shape;
  load_rows(in.value(first, head), s.columns(), c.v, c.row, keys.tokens, keys.rows, s.value_dim);
  double sum = 0.0;
  for (int64_t i = 0; i < keys.rows; i++) {
    const bool there = i < keys.tokens;
    const int64_t at = (first + i) * s.value_heads + head;
    if (there) sum += static_cast<double>(in.decay[at]);
    c.b[i] = sum;
    c.beta[i] = there ? in.beta[at] : 0.0f;
  }
  for (int64_t i = 0; i < keys.rows; i++) {
    c.decayed[i] = static_cast<float>(std::exp(c.b[i]));
    c.rest[i] = static_cast<float>(std::exp(sum - c.b[i]));
  }
  c.last = static_cast<float>(std::exp(sum));
  weigh_pairs(c.b, c.beta, keys.kk, keys.qk, c.d, c.a, c.p, keys.rows);
}

inline void clear_rows(float* x, int64_t row, int64_t rows) {
  std::memset(x, 0, static_cast<size_t>(row * rows) * sizeof(float));
}

// Fills in ks, and n, from the state before the chunk; with_queries: qs as well. nullptr is a state of zeros,
// with which a short sample has none of the largest products.
inline void read_state(const ChunkKeys& keys, ChunkValues& c, const float* state, bool with_queries) {
  const SmallSize size{keys.rows, c.row - kSmallColumns, keys.row - kSmallColumns};
  if (state != nullptr) {
    small_product<Into::set>({keys.k, keys.row, 1}, state, c.row, c.ks, c.row, size);
    if (with_queries) small_product<Into::set>({keys.q, keys.row, 1}, state, c.row, c.qs, c.row, size);
  } else {
    clear_rows(c.ks, c.row, keys.rows);
    if (with_queries) clear_rows(c.qs, c.row, keys.rows);
  }
  unread_values(c, c.v, c.ks, c.n, keys.rows);
  solve_lower(c.a, c.n, c.row, keys.rows);
}

inline void write_state(const ChunkKeys& keys, ChunkValues& c, float* state) {
  const int64_t key_columns = keys.row - kSmallColumns;
  scale_rows(keys.k, c.rest, c.kd, keys.row, keys.rows);
  scale_all(state, c.last, key_columns * c.row);
  small_product<Into::add>({c.kd, 1, keys.row}, c.n, c.row, state, c.row,
                           {key_columns, c.row - kSmallColumns, keys.rows});
}

// States lie padded in a thread's memory.
inline int64_t state_size(const DeltaShape& shape) {
  return padded_columns(shape.key_dim) * row_distance(shape.value_dim);
}
inline void load_state(const float* from, float* to, const DeltaShape& shape) {
  std::memset(to, 0, static_cast<size_t>(state_size(shape)) * sizeof(float));
  if (from == nullptr) return;
  load_rows(from, shape.value_dim, to, row_distance(shape.value_dim), shape.key_dim, shape.key_dim,
            shape.value_dim);
}

inline int64_t chunks_of(int64_t tokens) { return (tokens + kDeltaChunk - 1) / kDeltaChunk; }

// The number of each run's first kept state, and of all of them.
inline std::vector<int64_t> kept_of_runs(const TokenRuns& runs) {
  std::vector<int64_t> first{0};
  for (const TokenRun& run : runs) {
    const int64_t groups = (run.tokens + kKeptTokens - 1) / kKeptTokens;
    first.push_back(first.back() + std::max<int64_t>(groups - 1, 0));
  }
  return first;
}

// Calls body(memory, run, key head) for each, with a thread's own memory, of zeros at first. One head after
// another, so that each thread gets a share of a long run.
template <class Body>
void for_runs_and_heads(const TokenRuns& runs, int64_t heads, const at::Tensor& memory, const Body& body) {
  const auto count = static_cast<int64_t>(runs.size());
  at::parallel_for(0, count * heads, 1, [&](int64_t begin, int64_t end) {
    float* const own = memory[at::get_thread_num()].mutable_data_ptr<float>();
    for (int64_t task = begin; task < end; task++) body(own, task % count, task / count);
  });
}

}  // namespace
}  // namespace trainer
