// The loops of attention to cached keys and values: a key/value head of a row at a time.
#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/vector_math.h"
#include "device/op.h"
#include "ops/cached_attention.h"

namespace trainer {
namespace {

constexpr int64_t kDotLanes = 16;          // sums of a product side by side
constexpr int64_t kCachedGrain = 1 << 15;  // products of a thread, at least

template <class T>
TRAINER_INLINE float dot_of_head(const float* __restrict__ x, const T* __restrict__ y, int64_t count) {
  float lanes[kDotLanes] = {};
  int64_t i = 0;
  for (; i + kDotLanes <= count; i += kDotLanes) {
    for (int64_t lane = 0; lane < kDotLanes; lane++)
      lanes[lane] += x[i + lane] * static_cast<float>(y[i + lane]);
  }
  for (int64_t half = kDotLanes / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; lane++) lanes[lane] += lanes[lane + half];
  }
  for (; i < count; i++) lanes[0] += x[i] * static_cast<float>(y[i]);
  return lanes[0];
}

// What a head of a row sees of the cache: `count` positions, of which `always` are the first ones and the
// others follow `skipped` positions later.
template <class T>
struct SeenKeys {
  const T *k, *v;  // of the head in slot 0
  int64_t slot_stride;
  const int32_t* slots;  // of position 0
  int64_t slots_stride;  // 0: all positions lie in one
  int64_t always, skipped, count, head_dim;

  TRAINER_INLINE int64_t place(int64_t i) const {
    const int64_t position = i < always ? i : i + skipped;
    return slots[position * slots_stride] * slot_stride + position * head_dim;
  }
};

// scores[query][i] = scale * q k of a position; queries of one key/value head are beside each other.
template <class T>
TRAINER_VECTORISED void score_keys(const SeenKeys<T>& seen, const float* __restrict__ q, int64_t queries,
                                   float scale, float* __restrict__ scores) {
  for (int64_t i = 0; i < seen.count; i++) {
    const T* k = seen.k + seen.place(i);
    for (int64_t query = 0; query < queries; query++)
      scores[query * seen.count + i] = scale * dot_of_head(q + query * seen.head_dim, k, seen.head_dim);
  }
}

// Makes scores weights, and returns what they are to be multiplied with so that their sum is 1.
TRAINER_VECTORISED float weigh_scores(float* __restrict__ scores, int64_t count) {
  float largest = -INFINITY;
  for (int64_t i = 0; i < count; i++) largest = scores[i] > largest ? scores[i] : largest;
  for (int64_t i = 0; i < count; i++) scores[i] = fast_exp(scores[i] - largest);
  float sum = 0.0f;
  for (int64_t i = 0; i < count; i++) sum += scores[i];
  return 1.0f / sum;
}

template <class T>
TRAINER_INLINE void add_value(float* __restrict__ sum, const T* __restrict__ v, float weight, int64_t count) {
  for (int64_t c = 0; c < count; c++) sum[c] += weight * static_cast<float>(v[c]);
}

template <class T>
TRAINER_VECTORISED void sum_values(const SeenKeys<T>& seen, const float* __restrict__ weights,
                                   int64_t queries, float* __restrict__ sums) {
  std::fill(sums, sums + queries * seen.head_dim, 0.0f);
  for (int64_t i = 0; i < seen.count; i++) {
    const T* v = seen.v + seen.place(i);
    for (int64_t query = 0; query < queries; query++)
      add_value(sums + query * seen.head_dim, v, weights[query * seen.count + i], seen.head_dim);
  }
}

struct CachedCall {
  const at::Tensor& q;
  const NewKeys& added;
  const CachedKeys& keys;
  const CachedScores& how;
  at::Tensor out;

  int64_t rows() const { return q.size(0); }
  int64_t kv_heads() const { return keys.k.size(1); }
  int64_t queries() const { return q.size(1) / kv_heads(); }
  // Of the table: a row's positions, and then its slots.
  const int32_t* row_of_table(int64_t row) const {
    return keys.table.const_data_ptr<int32_t>() + row * keys.table.stride(0);
  }
};

template <class T>
void add_new_key(const CachedCall& call, int64_t row, int64_t head, int64_t position) {
  const auto copy = [&](const at::Tensor& from, const at::Tensor& cache) {
    const T* x = from.const_data_ptr<T>() + row * from.stride(0) + head * from.stride(1);
    const int64_t slot = call.row_of_table(row)[1];
    T* to = static_cast<T*>(cache.data_ptr()) + slot * cache.stride(0) + head * cache.stride(1);
    std::copy(x, x + from.size(2), to + position * from.size(2));
  };
  copy(call.added.k, call.keys.k);
  copy(call.added.v, call.keys.v);
}

void change_scores(const CachedCall& call, int64_t head, int64_t count, float* scores) {
  if (call.how.soft_cap > 0) {
    const auto cap = static_cast<float>(call.how.soft_cap);
    for (int64_t i = 0; i < count; i++) scores[i] = cap * std::tanh(scores[i] / cap);
  }
  if (!call.how.bias.defined()) return;
  const float* bias = call.how.bias.const_data_ptr<float>() + head * call.how.bias.stride(0);
  for (int64_t i = 0; i < count; i++) scores[i] += bias[count - 1 - i];
}

template <class T>
void attend_row_head(const CachedCall& call, int64_t row, int64_t kv_head, std::vector<float>& memory) {
  const CachedKeys& keys = call.keys;
  const int32_t* of_row = call.row_of_table(row);
  const int64_t length = of_row[0], head_dim = call.q.size(2);
  if (call.added.k.defined()) add_new_key<T>(call, row, kv_head, length - 1);
  const at::Tensor& first = call.how.always;
  const int64_t always = first.defined() ? first.const_data_ptr<int32_t>()[row * first.stride(0)] : 0;
  const int64_t skipped = call.how.window > 0 ? std::max<int64_t>(length - always - call.how.window, 0) : 0;
  const SeenKeys<T> seen{keys.k.const_data_ptr<T>() + kv_head * keys.k.stride(1),
                         keys.v.const_data_ptr<T>() + kv_head * keys.v.stride(1),
                         keys.k.stride(0),
                         of_row + (keys.in_own_slot ? 1 : 2),
                         keys.in_own_slot ? 0 : 1,
                         always,
                         skipped,
                         length - skipped,
                         head_dim};
  const int64_t queries = call.queries(), of_q = queries * head_dim, of_scores = queries * seen.count;
  memory.resize(std::max(memory.size(), static_cast<size_t>(2 * of_q + of_scores)));
  float *const q = memory.data(), *const sums = q + of_q, *const scores = sums + of_q;
  for (int64_t query = 0; query < queries; query++) {
    const T* from =
        call.q.const_data_ptr<T>() + row * call.q.stride(0) + (kv_head * queries + query) * call.q.stride(1);
    for (int64_t c = 0; c < head_dim; c++) q[query * head_dim + c] = static_cast<float>(from[c]);
  }
  score_keys(seen, q, queries, static_cast<float>(call.how.scale), scores);
  std::vector<float> factors(static_cast<size_t>(queries));
  for (int64_t query = 0; query < queries; query++) {
    change_scores(call, kv_head * queries + query, seen.count, scores + query * seen.count);
    factors[static_cast<size_t>(query)] = weigh_scores(scores + query * seen.count, seen.count);
  }
  sum_values(seen, scores, queries, sums);
  T* to = static_cast<T*>(call.out.mutable_data_ptr()) + (row * call.kv_heads() + kv_head) * of_q;
  for (int64_t i = 0; i < of_q; i++)
    to[i] = static_cast<T>(sums[i] * factors[static_cast<size_t>(i / head_dim)]);
}

}  // namespace

at::Tensor cached_attention_cpu(const at::Tensor& q, const NewKeys& added, const CachedKeys& keys,
                                const CachedScores& how) {
  const at::Tensor out = at::empty({q.size(0), q.size(1) * q.size(2)}, q.options());
  if (out.is_meta()) return out;
  const CachedCall call{q, added, keys, how, out};
  int64_t positions = 0;
  for (int64_t row = 0; row < q.size(0); row++) positions += call.row_of_table(row)[0];
  const int64_t tasks = call.rows() * call.kv_heads();
  const int64_t of_task =
      std::max<int64_t>(positions / std::max<int64_t>(q.size(0), 1), 1) * call.queries() * q.size(2);
  with_element_type(q, "cached_attention", [&]<class T>() {
    at::parallel_for(0, tasks, std::max<int64_t>(kCachedGrain / std::max<int64_t>(of_task, 1), 1),
                     [&](int64_t begin, int64_t end) {
                       std::vector<float> memory;
                       for (int64_t task = begin; task < end; task++)
                         attend_row_head<T>(call, task / call.kv_heads(), task % call.kv_heads(), memory);
                     });
  });
  return out;
}

}  // namespace trainer
