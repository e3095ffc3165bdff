// The gradients of the gated delta rule on the CPU, chunk by chunk from the last to the first. The states in
// between are made again from those that forward kept.
#include <algorithm>
#include <cstring>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "device/op.h"
#include "ops/gated_delta.h"
#include "ops/gated_delta_chunk.h"

namespace trainer {
namespace {

// Names as in gated_delta_chunk.h; g_x is the gradient of x.
struct BackwardHead {
  BackwardHead(float* from, const DeltaShape& shape)
      : memory(from), keys(memory, shape), values(memory, shape), size(state_size(shape)) {
    const int64_t of_values = kDeltaChunk * values.row, of_keys = kDeltaChunk * keys.row;
    const int64_t of_pairs = kDeltaChunk * kChunkRow, value_columns = values.row - kSmallColumns;
    for (float** each : {&g_out, &g_read, &g_n, &g_ks}) *each = memory.take(of_values);
    for (float** each : {&g_k, &g_q, &g_kd}) *each = memory.take(of_keys);
    for (float** each : {&g_a, &g_p}) *each = memory.take(of_pairs);
    nt = memory.take(value_columns * kChunkRow);
    for (float** each : {&state_t, &g_state_t}) *each = memory.take(value_columns * keys.row);
    for (float** each : {&g_beta, &row_sums, &column_sums}) *each = memory.take(kDeltaChunk);
    states = memory.take(kKeptChunks * shape.group() * size);
    g_states = memory.take(shape.group() * size);
  }
  static int64_t floats(const DeltaShape& shape) { return BackwardHead(nullptr, shape).memory.taken(); }

  DeltaMemory memory;
  ChunkKeys keys;
  ChunkValues values;
  int64_t size;
  float *g_out, *g_read, *g_n, *g_ks;  // g_read: e^b g_out
  float *g_k, *g_q, *g_kd, *g_a, *g_p;
  float *nt, *state_t, *g_state_t;  // transposed
  float *g_beta, *row_sums, *column_sums;
  float *states, *g_states;  // before each chunk of a group; after the chunk
};

TRAINER_VECTORISED float dot(const float* __restrict__ x, const float* __restrict__ y, int64_t count) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; i++) sum += x[i] * y[i];
  return sum;
}

// x_i -= sum of a_ji x_j for i < j < first + 16, for 16 rows.
TRAINER_VECTORISED void substitute_back(const float* __restrict__ a, float* x, int64_t row, int64_t first) {
  for (int64_t i = first + kSmallColumns - 2; i >= first; i--) {
    float* const to = x + i * row;
    for (int64_t j = i + 1; j < first + kSmallColumns; j++) {
      const float factor = a[j * kChunkRow + i];
      const float* const from = x + j * row;
#pragma GCC ivdep
      for (int64_t c = 0; c < row - kSmallColumns; c++) to[c] -= factor * from[c];
    }
  }
}

// sum (+)= t^T x for a lower triangular t [rows, rows].
template <Into into>
void lower_transposed(const float* t, const float* x, float* sum, int64_t row, int64_t rows) {
  for (int64_t i = 0; i < rows; i += kSmallColumns) {
    small_product<into>({t + i * kChunkRow + i, 1, kChunkRow}, x + i * row, row, sum + i * row, row,
                        {kSmallColumns, row - kSmallColumns, rows - i});
  }
}
// sum += t x
void lower_times(const float* t, const float* x, float* sum, int64_t row, int64_t rows) {
  for (int64_t i = 0; i < rows; i += kSmallColumns) {
    small_product<Into::add>({t + i * kChunkRow, kChunkRow, 1}, x, row, sum + i * row, row,
                             {kSmallColumns, row - kSmallColumns, i + kSmallColumns});
  }
}
// pairs = x n^T up to the diagonal.
void pairs_with(const float* x, const float* nt, float* pairs, int64_t row, int64_t rows) {
  for (int64_t i = 0; i < rows; i += kSmallColumns) {
    small_product<Into::set>({x + i * row, row, 1}, nt, kChunkRow, pairs + i * kChunkRow, kChunkRow,
                             {kSmallColumns, i + kSmallColumns, row - kSmallColumns});
  }
}

// x = A^-T x
void solve_upper(const float* a, float* x, int64_t row, int64_t rows) {
  for (int64_t first = rows - kSmallColumns; first >= 0; first -= kSmallColumns) {
    const int64_t later = first + kSmallColumns;
    small_product<Into::subtract>({a + later * kChunkRow + first, 1, kChunkRow}, x + later * row, row,
                                  x + first * row, row, {kSmallColumns, row - kSmallColumns, rows - later});
    substitute_back(a, x, row, first);
  }
}

// From g_a (with the other sign) and g_p, the gradients of k k^T and q k^T, in their place; what the pairs
// add to beta's gradient; and the sums of the gradients of b_i - b_j.
TRAINER_VECTORISED void pair_gradients(const ChunkKeys& keys, const ChunkValues& c, float* __restrict__ g_a,
                                       float* __restrict__ g_p, float* __restrict__ g_beta,
                                       float* __restrict__ row_sums, float* __restrict__ column_sums) {
  const float* const __restrict__ kk = keys.kk;
  const float* const __restrict__ qk = keys.qk;
  const float* const __restrict__ d = c.d;
  const auto rows = static_cast<int32_t>(keys.rows);
  for (int32_t j = 0; j < rows; j++) column_sums[j] = 0.0f;
  for (int32_t i = 0; i < rows; i++) {
    const int64_t at = i * kChunkRow;
    const float beta = c.beta[i];
    float of_beta = 0.0f, of_row = 0.0f;
#pragma omp simd reduction(+ : of_beta, of_row)
    for (int32_t j = 0; j < rows; j++) {
      const float weighted = j < i ? -g_a[at + j] * d[at + j] : 0.0f;
      const float of_kk = weighted * beta, of_qk = j <= i ? g_p[at + j] * d[at + j] : 0.0f;
      const float e = j <= i ? of_kk * kk[at + j] + of_qk * qk[at + j] : 0.0f;
      of_beta += j < i ? weighted * kk[at + j] : 0.0f;
      of_row += e;
      column_sums[j] += e;
      g_a[at + j] = of_kk;
      g_p[at + j] = of_qk;
    }
    g_beta[i] = of_beta;
    row_sums[i] = of_row;
  }
}

// y += factors x, by rows
TRAINER_VECTORISED void add_scaled_rows(const float* __restrict__ x, const float* __restrict__ factors,
                                        float* __restrict__ y, int64_t row, int64_t rows) {
  for (int64_t i = 0; i < rows; i++) {
    for (int64_t c = 0; c < row - kSmallColumns; c++) y[i * row + c] += factors[i] * x[i * row + c];
  }
}

// The gradient of a division by the norm: x = scale y, scale = factor / |y|.
template <class T>
TRAINER_VECTORISED void store_unit_rows_gradient(const float* __restrict__ g, const float* __restrict__ x,
                                                 const float* __restrict__ scales, int64_t row,
                                                 T* __restrict__ to, int64_t to_row, int64_t tokens,
                                                 int64_t columns, float factor) {
  for (int64_t t = 0; t < tokens; t++) {
    const float *gt = g + t * row, *xt = x + t * row;
    float along = 0.0f;
#pragma omp simd reduction(+ : along)
    for (int64_t c = 0; c < columns; c++) along += gt[c] * xt[c];
    along /= factor * factor;
    for (int64_t c = 0; c < columns; c++)
      to[t * to_row + c] = static_cast<T>(scales[t] * (gt[c] - along * xt[c]));
  }
}

template <class T>
struct DeltaGradients {
  T* qkv;
  float *decay, *beta;
};

// The states around a chunk of a run. Before the first one the state is 0 and needs no gradient; behind the
// last one the gradient is 0. Products with those are left out.
struct AroundChunk {
  const float* state;    // before the chunk; nullptr: 0
  float* g_state;        // after the chunk; becomes that before it, unless state is nullptr
  bool is_last = false;  // g_state is 0
};

// What the state after the chunk gives: adds to g_n, fills in g_kd.
void from_next_state(BackwardHead& w, const float* g_state) {
  const ChunkKeys& keys = w.keys;
  ChunkValues& c = w.values;
  const int64_t rows = keys.rows, key_columns = keys.row - kSmallColumns, columns = c.row - kSmallColumns;
  transpose_small(g_state, c.row, w.g_state_t, keys.row, key_columns, columns);
  scale_rows(keys.k, c.rest, c.kd, keys.row, rows);
  small_product<Into::add>({c.kd, keys.row, 1}, g_state, c.row, w.g_n, c.row, {rows, columns, key_columns});
  small_product<Into::set>({c.n, c.row, 1}, w.g_state_t, keys.row, w.g_kd, keys.row,
                           {rows, key_columns, columns});
}

// The part of the gradients that goes through N: fills in g_n, from which it makes those of v and of K S,
// g_a, g_p and g_kd.
void through_products(BackwardHead& w, const AroundChunk& around) {
  const ChunkKeys& keys = w.keys;
  ChunkValues& c = w.values;
  const int64_t rows = keys.rows;
  transpose_small(c.n, c.row, w.nt, kChunkRow, rows, c.row - kSmallColumns);
  lower_transposed<Into::set>(c.p, w.g_out, w.g_n, c.row, rows);
  if (around.is_last) {
    clear_rows(w.g_kd, keys.row, rows);
  } else {
    from_next_state(w, around.g_state);
  }
  pairs_with(w.g_out, w.nt, w.g_p, c.row, rows);
  solve_upper(c.a, w.g_n, c.row, rows);
  pairs_with(w.g_n, w.nt, w.g_a, c.row, rows);
}

// Adds to g_k and g_q what the chunk's pairs give.
void into_keys(BackwardHead& w) {
  const ChunkKeys& keys = w.keys;
  const int64_t rows = keys.rows;
  lower_times(w.g_a, keys.k, w.g_k, keys.row, rows);
  lower_transposed<Into::add>(w.g_a, keys.k, w.g_k, keys.row, rows);
  lower_transposed<Into::add>(w.g_p, keys.q, w.g_k, keys.row, rows);
  lower_times(w.g_p, keys.k, w.g_q, keys.row, rows);
  add_scaled_rows(w.g_kd, w.values.rest, w.g_k, keys.row, rows);
}

// Adds to g_k and g_q what reading the state gives, and makes g_state that before the chunk.
void through_state(BackwardHead& w, const AroundChunk& around) {
  const ChunkKeys& keys = w.keys;
  const ChunkValues& c = w.values;
  const int64_t rows = keys.rows, key_columns = keys.row - kSmallColumns, columns = c.row - kSmallColumns;
  transpose_small(around.state, c.row, w.state_t, keys.row, key_columns, columns);
  small_product<Into::add>({w.g_read, c.row, 1}, w.state_t, keys.row, w.g_q, keys.row,
                           {rows, key_columns, columns});
  small_product<Into::add>({w.g_ks, c.row, 1}, w.state_t, keys.row, w.g_k, keys.row,
                           {rows, key_columns, columns});
  scale_all(around.g_state, c.last, key_columns * c.row);
  small_product<Into::add>({keys.q, 1, keys.row}, w.g_read, c.row, around.g_state, c.row,
                           {key_columns, columns, rows});
  small_product<Into::add>({keys.k, 1, keys.row}, w.g_ks, c.row, around.g_state, c.row,
                           {key_columns, columns, rows});
}

// One value head of one chunk.
template <class T>
void chunk_gradients(BackwardHead& w, const DeltaPlaces<T>& in, const T* grad, const DeltaGradients<T>& to,
                     int64_t head, int64_t token, const AroundChunk& around) {
  const DeltaShape& s = in.shape;
  const ChunkKeys& keys = w.keys;
  ChunkValues& c = w.values;
  const int64_t columns = c.row - kSmallColumns, key_columns = keys.row - kSmallColumns;
  read_values(in, keys, c, head, token);
  read_state(keys, c, around.state, /*with_queries=*/true);
  load_rows(grad + token * s.values() + head * s.value_dim, s.values(), w.g_out, c.row, keys.tokens,
            keys.rows, s.value_dim);
  through_products(w, around);
  pair_gradients(keys, c, w.g_a, w.g_p, w.g_beta, w.row_sums, w.column_sums);
  double g_b[kDeltaChunk] = {};  // of the summed decays
  double of_last = 0.0;
  if (around.state != nullptr && !around.is_last) {
    const float along = dot(around.state, around.g_state, key_columns * c.row);
    of_last = static_cast<double>(c.last) * static_cast<double>(along);
  }
  T* const g_values = to.qkv + token * s.columns() + 2 * s.keys() + head * s.value_dim;
  for (int64_t i = 0; i < keys.tokens; i++) {
    const int64_t at = i * c.row;
    const float *g_n = w.g_n + at, of_v = dot(g_n, c.v + at, columns), of_ks = dot(g_n, c.ks + at, columns);
    const float of_kd = c.rest[i] * dot(w.g_kd + i * keys.row, keys.k + i * keys.row, key_columns);
    const float of_read = dot(w.g_out + at, c.qs + at, columns);
    to.beta[(token + i) * s.value_heads + head] = w.g_beta[i] + of_v - c.decayed[i] * of_ks;
    g_b[i] = static_cast<double>(w.row_sums[i] - w.column_sums[i] - of_kd +
                                 c.decayed[i] * (of_read - c.beta[i] * of_ks));
    of_last += static_cast<double>(of_kd);
  }
  for (int64_t i = 0; i < keys.rows; i++) w.row_sums[i] = -c.beta[i] * c.decayed[i];
  if (around.state != nullptr) {
    scale_rows(w.g_n, w.row_sums, w.g_ks, c.row, keys.rows);
    scale_rows(w.g_out, c.decayed, w.g_read, c.row, keys.rows);
    through_state(w, around);
  }
  into_keys(w);
  scale_rows(w.g_n, c.beta, w.g_out, c.row, keys.rows);
  store_rows(w.g_out, c.row, g_values, s.columns(), keys.tokens, s.value_dim);
  double sum = of_last;
  for (int64_t i = keys.tokens - 1; i >= 0; i--) {
    sum += g_b[i];
    to.decay[(token + i) * s.value_heads + head] = static_cast<float>(sum);
  }
}

template <class T>
void run_head_back(float* memory, const DeltaPlaces<T>& in, const T* grad, const DeltaGradients<T>& to,
                   const TokenRun& run, int64_t head, const float* kept) {
  const DeltaShape& s = in.shape;
  BackwardHead w(memory, s);
  const int64_t stored = s.key_dim * s.value_dim, chunks = chunks_of(run.tokens),
                first_head = head * s.group();
  const auto read = [&](int64_t chunk) {
    const int64_t token = run.first + chunk * kDeltaChunk;
    read_keys(in, w.keys, head, token, std::min(kDeltaChunk, run.first + run.tokens - token));
    return token;
  };
  const auto state_of = [&](int64_t place, int64_t h) { return w.states + (place * s.group() + h) * w.size; };
  std::memset(w.g_states, 0, static_cast<size_t>(s.group() * w.size) * sizeof(float));
  for (int64_t group = (chunks - 1) / kKeptChunks; group >= 0; group--) {
    const int64_t begin = group * kKeptChunks, end = std::min(chunks, begin + kKeptChunks);
    for (int64_t h = 0; h < s.group(); h++) {
      load_state(group == 0 ? nullptr : kept + ((group - 1) * s.value_heads + h) * stored, state_of(0, h), s);
    }
    for (int64_t chunk = begin; chunk + 1 < end; chunk++) {
      const int64_t token = read(chunk);
      for (int64_t h = 0; h < s.group(); h++) {
        const bool is_zero = chunk == 0;
        const float* const state = state_of(chunk - begin, h);
        float* const next = state_of(chunk - begin + 1, h);
        read_values(in, w.keys, w.values, first_head + h, token);
        read_state(w.keys, w.values, is_zero ? nullptr : state, /*with_queries=*/false);
        std::memcpy(next, state, static_cast<size_t>(w.size) * sizeof(float));
        write_state(w.keys, w.values, next);
      }
    }
    for (int64_t chunk = end - 1; chunk >= begin; chunk--) {
      const int64_t token = read(chunk);
      std::memset(w.g_k, 0, static_cast<size_t>(kDeltaChunk * w.keys.row) * sizeof(float));
      std::memset(w.g_q, 0, static_cast<size_t>(kDeltaChunk * w.keys.row) * sizeof(float));
      for (int64_t h = 0; h < s.group(); h++) {
        const AroundChunk around{chunk == 0 ? nullptr : state_of(chunk - begin, h), w.g_states + h * w.size,
                                 /*is_last=*/chunk + 1 == chunks};
        chunk_gradients(w, in, grad, to, first_head + h, token, around);
      }
      T* const g_query = to.qkv + token * s.columns() + head * s.key_dim;
      const auto factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.key_dim)));
      store_unit_rows_gradient(w.g_q, w.keys.q, w.keys.q_scale, w.keys.row, g_query, s.columns(),
                               w.keys.tokens, s.key_dim, factor);
      store_unit_rows_gradient(w.g_k, w.keys.k, w.keys.k_scale, w.keys.row, g_query + s.keys(), s.columns(),
                               w.keys.tokens, s.key_dim, 1.0f);
    }
  }
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> gated_delta_backward_cpu(const at::Tensor& grad_,
                                                                        const DeltaInputs& in,
                                                                        const at::Tensor& kept_states,
                                                                        const DeltaShape& shape,
                                                                        const TokenRuns& runs) {
  const at::Tensor qkv = in.qkv.contiguous(), decay = in.decay.contiguous(), beta = in.beta.contiguous();
  const at::Tensor grad = grad_.contiguous();
  at::Tensor g_qkv = zeros_in_padding(qkv, runs), g_decay = zeros_in_padding(decay, runs),
             g_beta = zeros_in_padding(beta, runs);
  const std::vector<int64_t> first_kept = kept_of_runs(runs);
  const at::Tensor memory = at::zeros({at::get_num_threads(), BackwardHead::floats(shape)}, decay.options());
  if (qkv.is_meta()) return {g_qkv, g_decay, g_beta};
  with_element_type(qkv, "gated_delta_backward", [&]<class T>() {
    const DeltaPlaces<T> places{qkv.const_data_ptr<T>(), decay.const_data_ptr<float>(),
                                beta.const_data_ptr<float>(), shape};
    const DeltaGradients<T> to{g_qkv.mutable_data_ptr<T>(), g_decay.mutable_data_ptr<float>(),
                               g_beta.mutable_data_ptr<float>()};
    const T* const from = grad.const_data_ptr<T>();
    const int64_t stored = shape.key_dim * shape.value_dim;
    for_runs_and_heads(runs, shape.key_heads, memory, [&](float* own, int64_t run, int64_t head) {
      const int64_t at = first_kept[static_cast<size_t>(run)] * shape.value_heads + head * shape.group();
      run_head_back(own, places, from, to, runs[static_cast<size_t>(run)], head,
                    kept_states.const_data_ptr<float>() + at * stored);
    });
  });
  return {g_qkv, g_decay, g_beta};
}

}  // namespace trainer
