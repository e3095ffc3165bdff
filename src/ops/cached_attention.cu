// Attention of one new token a row to cached keys (src/ops/cached_attention.h). Blocks take a chunk of the
// positions that a row sees; a second kernel puts the chunks together. How many positions a row has is read
// here, so that a launch is the same for every step. Open: Element, kWidth, kQueries, the queries of a
// key/value head that a block takes together.
#include "device/prelude.cuh"

constexpr int kChunk = 128;        // positions, and threads of a block
constexpr int kMostHeadDim = 512;  // as in cached_attention.cpp
constexpr int kFactsOfRow = 2;     // in the table, before the slots of positions

// Filled by src/ops/cached_attention.cpp.
struct CachedShape {
  int heads, kv_heads, head_dim, positions, chunks, in_own_slot, window;
  float scale, soft_cap;
  long long table_row, q_row, q_head, k_row, k_head, v_row, v_head, bias_head, always_row;
};

// What a row sees: positions 0, 1, ... `always` - 1, and those from `always` + `skipped` on.
struct SeenPositions {
  DEVICE SeenPositions(const int* of_row, int always, int window) : length(of_row[0]), always(always) {
    const int far = length - always - window;
    skipped = window > 0 && far > 0 ? far : 0;
    count = length - skipped;
  }
  DEVICE int at(int i) const { return i < always ? i : i + skipped; }

  int length, always, skipped, count;
};

// Adds products of `kQueries` queries in shared memory with a key.
DEVICE void add_products_of_key(float (&sums)[kQueries], const float (&queries)[kQueries][kMostHeadDim],
                                const Element* key, int head_dim) {
  for (int c = 0; c < head_dim; c += kWidth) {
    const auto part = load<kWidth>(key + c);
    UNROLL for (int i = 0; i < kWidth; i++) {
      UNROLL for (int query = 0; query < kQueries; query++) sums[query] +=
          queries[query][c + i] * wide(part.at[i]);
    }
  }
}

DEVICE void copy_head(Element* to, const Element* from, int head_dim) {
  for (int c = 0; c < head_dim; c += kWidth) store<kWidth>(to + c, load<kWidth>(from + c));
}

// A warp makes the scores of each of its queries weights with a sum of `total`, relative to exp(most).
DEVICE void weigh_scores(float (&weights)[kQueries][kChunk], float* most, float* total) {
  const int lane = threadIdx.x % 32;
  for (int query = threadIdx.x / 32; query < kQueries; query += kChunk / 32) {
    float highest = -infinity(), sum = 0.0f;
    for (int i = lane; i < kChunk; i += 32) highest = Most::of(weights[query][i], highest);
    highest = over_warp<Most>(highest);
    for (int i = lane; i < kChunk; i += 32) {
      const float weight = expf(weights[query][i] - highest);
      weights[query][i] = weight;
      sum += weight;
    }
    sum = over_warp<Sum>(sum);
    if (lane != 0) continue;
    most[query] = highest;
    total[query] = sum;
  }
}

// Sums weights times values into sums [kQueries][head_dim]. Threads share the positions of a piece of
// `kWidth` columns, and add theirs one after another.
DEVICE void sum_values(float (&sums)[kQueries][kMostHeadDim], const float (&weights)[kQueries][kChunk],
                       const Element* const* values, int count, int head_dim) {
  const int pieces = head_dim / kWidth, together = pieces < kChunk ? pieces : kChunk;
  const int parts = kChunk / together, part = static_cast<int>(threadIdx.x) / together;
  for (int first = 0; first < pieces; first += together) {
    const int piece = first + static_cast<int>(threadIdx.x) % together, column = piece * kWidth;
    const bool has_work = part < parts && piece < pieces;
    float own[kQueries][kWidth] = {};
    for (int i = part; has_work && i < count; i += parts) {
      const auto value = load<kWidth>(values[i] + column);
      UNROLL for (int query = 0; query < kQueries; query++) {
        UNROLL for (int k = 0; k < kWidth; k++) own[query][k] += weights[query][i] * wide(value.at[k]);
      }
    }
    for (int turn = 0; turn < parts; turn++) {
      if (has_work && part == turn) {
        UNROLL for (int query = 0; query < kQueries; query++) {
          UNROLL for (int k = 0; k < kWidth; k++) {
            float& sum = sums[query][column + k];
            sum = turn == 0 ? own[query][k] : sum + own[query][k];
          }
        }
      }
      __syncthreads();
    }
  }
}

// q [rows, heads, head_dim]; added_k, added_v: of the new positions, or null. k, v [slots, kv_heads,
// positions, head_dim]; table, always, bias: as in the header, or null. Blocks: x has the chunks of all rows,
// y the key/value heads and, for each, its groups of queries. parts [rows, heads, chunks, head_dim + 2]: a
// chunk's weighted sum of values, its highest score, and its sum of weights.
KERNEL attend_chunk(const Element* q, const Element* added_k, const Element* added_v, Element* k, Element* v,
                    const int* table, const int* always, const float* bias, float* parts, CachedShape shape) {
  const int row = blockIdx.x / shape.chunks, chunk = blockIdx.x % shape.chunks;
  const int of_head = shape.heads / shape.kv_heads, groups = (of_head + kQueries - 1) / kQueries;
  const int kv_head = blockIdx.y / groups, group = blockIdx.y % groups;
  const int first_head = kv_head * of_head + group * kQueries, head_dim = shape.head_dim;
  const int* of_row = table + row * shape.table_row;
  const SeenPositions seen(of_row, always == nullptr ? 0 : always[row * shape.always_row], shape.window);
  const int left = seen.count - chunk * kChunk, count = left < kChunk ? left : kChunk;
  if (count <= 0) return;
  const int heads = of_head - group * kQueries < kQueries ? of_head - group * kQueries : kQueries;

  __shared__ float queries[kQueries][kMostHeadDim], weights[kQueries][kChunk];
  __shared__ const Element* values[kChunk];
  __shared__ float most[kQueries], total[kQueries];
  for (int i = threadIdx.x; i < kQueries * head_dim; i += kChunk) {
    const int query = i / head_dim, c = i % head_dim;
    queries[query][c] =
        query < heads ? wide(q[row * shape.q_row + (first_head + query) * shape.q_head + c]) : 0.0f;
  }
  __syncthreads();

  const int own = threadIdx.x, number = chunk * kChunk + own, position = seen.at(number);
  float scores[kQueries] = {};
  if (own < count) {
    const long long slot = of_row[shape.in_own_slot ? 1 : kFactsOfRow + position];
    const long long place = ((slot * shape.kv_heads + kv_head) * shape.positions + position) * head_dim;
    const Element *key = k + place, *value = v + place;
    if (added_k != nullptr && position == seen.length - 1) {
      key = added_k + row * shape.k_row + kv_head * shape.k_head;
      value = added_v + row * shape.v_row + kv_head * shape.v_head;
      if (group == 0) {
        copy_head(k + place, key, head_dim);
        copy_head(v + place, value, head_dim);
      }
    }
    values[own] = value;
    add_products_of_key(scores, queries, key, head_dim);
  }
  UNROLL for (int query = 0; query < kQueries; query++) {
    float score = scores[query] * shape.scale;
    if (shape.soft_cap > 0.0f) score = shape.soft_cap * tanhf(score / shape.soft_cap);
    if (bias != nullptr && own < count && query < heads)
      score += bias[(first_head + query) * shape.bias_head + (seen.count - 1 - number)];
    weights[query][own] = own < count ? score : -infinity();
  }
  __syncthreads();
  weigh_scores(weights, most, total);
  __syncthreads();  // the queries are not needed any more
  sum_values(queries, weights, values, count, head_dim);
  for (int i = threadIdx.x; i < heads * (head_dim + 2); i += kChunk) {
    const int query = i / (head_dim + 2), c = i % (head_dim + 2);
    const long long head = static_cast<long long>(row) * shape.heads + first_head + query;
    parts[(head * shape.chunks + chunk) * (head_dim + 2) + c] = c < head_dim    ? queries[query][c]
                                                                : c == head_dim ? most[query]
                                                                                : total[query];
  }
}

// A block for each head of each row: out [rows, heads, head_dim].
KERNEL put_chunks_together(const float* parts, const int* table, const int* always, Element* out,
                           CachedShape shape) {
  const int row = blockIdx.x / shape.heads, size = shape.head_dim + 2;
  const SeenPositions seen(table + row * shape.table_row,
                           always == nullptr ? 0 : always[row * shape.always_row], shape.window);
  const int chunks = (seen.count + kChunk - 1) / kChunk;
  parts += static_cast<long long>(blockIdx.x) * shape.chunks * size;
  float highest = -infinity(), total = 0.0f;
  for (int i = 0; i < chunks; i++) highest = Most::of(parts[i * size + shape.head_dim], highest);
  for (int i = 0; i < chunks; i++)
    total += expf(parts[i * size + shape.head_dim] - highest) * parts[i * size + shape.head_dim + 1];
  for (int c = threadIdx.x; c < shape.head_dim; c += blockDim.x) {
    float sum = 0.0f;
    for (int i = 0; i < chunks; i++)
      sum += expf(parts[i * size + shape.head_dim] - highest) * parts[i * size + c];
    out[static_cast<long long>(blockIdx.x) * shape.head_dim + c] = narrow<Element>(sum / total);
  }
}
