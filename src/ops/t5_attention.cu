// T5's attention: products, bias, softmax and dropout in one pass over the keys, and two passes for the
// gradients (src/ops/t5_attention.h). Nothing of the size queries x keys is kept: backward makes the weights
// again from each query's log-sum-exp. Open: kHeadDim, a multiple of 16 up to 128.
#include "ops/t5_attention.cuh"

constexpr int kWarps = kHeadDim <= 64 ? 4 : 2;
constexpr int kTile = 16 * kWarps;  // rows that a block has: 16 for each warp
constexpr int kKeyStep = 64;        // keys that forward takes at a time
constexpr int kStep = 32;           // keys or queries that backward takes
constexpr int kSums = kHeadDim / 8;

KERNEL attend(HeadRows q, HeadRows k, HeadRows v, HeadRows out, QueryFacts facts, AttentionShape shape,
              PositionBias bias, MaskOptions options) {
  const AttentionWork work(shape, /*of_queries=*/true, kTile);
  const int own = work.tile.first;
  if (own >= work.queries.count) return;
  __shared__ Tile<kTile, kHeadDim> of_q;
  __shared__ Tile<kKeyStep, kHeadDim> of_k, of_v;
  __shared__ BiasTable table;
  __shared__ float window[kTile + kKeyStep];
  const SumsPlace place;
  const bool dropped = facts.row_keys != nullptr;
  fill_tile(of_q, work.at(q, work.queries), q.row, own, work.queries.count);
  table.fill(bias, shape.heads);
  const int seen[2] = {work.seen_by(own + place.row), work.seen_by(own + place.row + 8)};
  const RowMask masks[2] = {work.mask(own + place.row, facts.row_keys, options),
                            work.mask(own + place.row + 8, facts.row_keys, options)};
  const float scale = shape.scale * kLog2E;
  float sums[kSums][4] = {}, most[2] = {-infinity(), -infinity()}, total[2] = {0.0f, 0.0f};
  const int end = work.seen_by(own + kTile - 1);
  for (int first = 0; first < end; first += kKeyStep) {
    __syncthreads();
    fill_tile(of_k, work.at(k, work.key_rows), k.row, first, work.keys);
    fill_tile(of_v, work.at(v, work.key_rows), v.row, first, work.keys);
    table.copy(window, first - own - (kTile - 1), kTile + kKeyStep - 1, bias);
    __syncthreads();
    float w[kKeyStep / 8][4] = {}, highest[2] = {most[0], most[1]}, less[2];
    add_products(w, of_q, place.warp_row, of_k);
    UNROLL for (int n = 0; n < kKeyStep / 8; n++) {
      UNROLL for (int i = 0; i < 4; i++) {
        const int half = SumsPlace::half(i), col = place.col_of(n, i);
        const float score = w[n][i] * scale + window[col - place.row_of(i) + kTile - 1];
        w[n][i] = first + col < seen[half] ? score : -infinity();
        highest[half] = Most::of(w[n][i], highest[half]);
      }
    }
    UNROLL for (int half = 0; half < 2; half++) {
      highest[half] = over_row_of_tile<Most>(highest[half]);
      less[half] = highest[half] == -infinity() ? 0.0f : highest[half];
      const float before = exp2f(most[half] - less[half]);
      most[half] = highest[half];
      total[half] *= before;
      UNROLL for (int n = 0; n < kSums; n++) {
        sums[n][half * 2] *= before;
        sums[n][half * 2 + 1] *= before;
      }
    }
    UNROLL for (int n = 0; n < kKeyStep / 8; n++) {
      UNROLL for (int i = 0; i < 4; i++) {
        const int half = SumsPlace::half(i);
        const float weight = exp2f(w[n][i] - less[half]);
        total[half] += weight;
        w[n][i] = !dropped || masks[half].keeps(first + place.col_of(n, i)) ? weight : 0.0f;
      }
    }
    add_weighted_rows(sums, w, of_v);
  }
  float factor[2];
  UNROLL for (int half = 0; half < 2; half++) {
    total[half] = over_row_of_tile<Sum>(total[half]);
    const bool sees = total[half] > 0.0f;
    factor[half] = sees ? (dropped ? options.scale : 1.0f) / total[half] : 0.0f;
    const int query = own + place.row + half * 8;
    if (place.col == 0 && query < work.queries.count)
      facts.lse[work.fact(query, shape)] = sees ? most[half] + log2f(total[half]) : infinity();
  }
  if (end == 0) __syncthreads();  // of_q is not filled yet
  put_sums(of_q, place.warp_row, sums, factor[0], factor[1]);
  __syncthreads();
  write_tile(of_q, work.at(out, work.queries), out.row, own, work.queries.count);
}

// The sums over head_dim of gradient times result, for the queries of a block: into shared memory, and for
// the pass over keys into facts.along. Two threads share a query.
DEVICE void sum_along(float* along, const Tile<kTile, kHeadDim>& of_g, const HeadRows& out,
                      const AttentionWork& work, const QueryFacts& facts, const AttentionShape& shape) {
  const int row = threadIdx.x / 2, part = threadIdx.x % 2 * (kHeadDim / 2), query = work.tile.first + row;
  float sum = 0.0f;
  if (query < work.queries.count) {
    const bf16* from = work.at(out, work.queries) + query * out.row + part;
    for (int col = 0; col < kHeadDim / 2; col += 8) {
      const auto piece = load<8>(from + col);
      UNROLL for (int i = 0; i < 8; i++) sum += wide(piece.at[i]) * wide(of_g.at[row][part + col + i]);
    }
  }
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  if (part != 0) return;
  along[row] = sum;
  if (query < work.queries.count) facts.along[work.fact(query, shape)] = sum;
}

// The gradient of the bias in a block: sums by distance over its queries and all keys, each in one order.
struct BiasGradient {
  // A thread has the diagonal `threadIdx.x` of each tile of gradients, which it adds here; what lies beyond
  // the reach it keeps.
  DEVICE void clear(int reach) {
    for (int i = threadIdx.x; i <= 2 * reach; i += blockDim.x) by_distance[i] = 0.0f;
  }
  // `distance`: of the tile's last row and first column, the lowest.
  DEVICE void add_diagonals(int distance, int reach, float& below, float& above) {
    const int diagonal = static_cast<int>(threadIdx.x);
    if (diagonal >= kTile + kStep - 1) return;
    float sum = 0.0f;
    for (int row = 0; row < kTile; row++) {
      const int col = diagonal - (kTile - 1) + row;
      if (col >= 0 && col < kStep) sum += tile[row][col];
    }
    distance += diagonal;
    if (distance < -reach) {
      below += sum;
    } else if (distance > reach) {
      above += sum;
    } else {
      by_distance[distance + reach] += sum;
    }
  }
  // to [buckets]
  DEVICE void write_buckets(float* to, const PositionBias& bias, float below, float above) {
    below = over_block<Sum>(below);
    above = over_block<Sum>(above);
    for (int bucket = threadIdx.x; bucket < bias.buckets; bucket += blockDim.x) {
      float sum = 0.0f;
      for (int i = 0; i <= 2 * bias.reach; i++) {
        if (bias.bucket_of[i] == bucket) sum += by_distance[i];
      }
      if (bias.bucket_of[0] == bucket) sum += below;
      if (bias.bucket_of[2 * bias.reach] == bucket) sum += above;
      to[bucket] = sum;
    }
  }

  float by_distance[2 * kMostReach + 1];
  float tile[kTile][kStep + 1];
};

// The gradient of a score, and its weight after dropout.
struct WeightGradient {
  float score, dropped;
};
DEVICE WeightGradient through_softmax(float log_weight, float grad, float along, bool keeps, float scale) {
  const float weight = exp2f(log_weight);
  return {weight * ((keeps ? grad * scale : 0.0f) - along), keeps ? weight * scale : 0.0f};
}

// g: the gradient of the result. With `gradient` and bias_parts [blocks, heads, buckets]: that of the bias.
DEVICE void backward_queries(const HeadRows& q, const HeadRows& k, const HeadRows& v, const HeadRows& out,
                             const HeadRows& g, const HeadRows& gq, const QueryFacts& facts,
                             const AttentionShape& shape, const PositionBias& bias,
                             const MaskOptions& options, BiasGradient* gradient, float* bias_parts) {
  const AttentionWork work(shape, /*of_queries=*/true, kTile);
  const int own = work.tile.first;
  if (gradient != nullptr) {
    bias_parts += (static_cast<long long>(blockIdx.x) * shape.heads + blockIdx.y) * bias.buckets;
    gradient->clear(bias.reach);
  }
  if (own >= work.queries.count) {
    if (gradient == nullptr) return;
    for (int i = threadIdx.x; i < bias.buckets; i += blockDim.x) bias_parts[i] = 0.0f;
    return;
  }
  __shared__ Tile<kTile, kHeadDim> of_q, of_g;
  __shared__ Tile<kStep, kHeadDim> of_k, of_v;
  __shared__ BiasTable table;
  __shared__ float window[kTile + kStep], along_of[kTile];
  const SumsPlace place;
  const bool dropped = facts.row_keys != nullptr;
  const float scale = shape.scale * kLog2E, kept_scale = dropped ? options.scale : 1.0f;
  fill_tile(of_q, work.at(q, work.queries), q.row, own, work.queries.count);
  fill_tile(of_g, work.at(g, work.queries), g.row, own, work.queries.count);
  table.fill(bias, shape.heads);
  __syncthreads();
  sum_along(along_of, of_g, out, work, facts, shape);
  __syncthreads();
  const int query[2] = {own + place.row, own + place.row + 8};
  const int seen[2] = {work.seen_by(query[0]), work.seen_by(query[1])};
  const RowMask masks[2] = {work.mask(query[0], facts.row_keys, options),
                            work.mask(query[1], facts.row_keys, options)};
  const float along[2] = {along_of[place.row], along_of[place.row + 8]};
  float lse[2], sums[kSums][4] = {}, below = 0.0f, above = 0.0f;
  UNROLL for (int half = 0; half < 2; half++) lse[half] =
      query[half] < work.queries.count ? facts.lse[work.fact(query[half], shape)] : infinity();
  const int end = work.seen_by(own + kTile - 1);
  for (int first = 0; first < end; first += kStep) {
    const int lowest = first - own - (kTile - 1);
    __syncthreads();
    fill_tile(of_k, work.at(k, work.key_rows), k.row, first, work.keys);
    fill_tile(of_v, work.at(v, work.key_rows), v.row, first, work.keys);
    table.copy(window, lowest, kTile + kStep - 1, bias);
    __syncthreads();
    float w[kStep / 8][4] = {}, gw[kStep / 8][4] = {};
    add_products(w, of_q, place.warp_row, of_k);
    add_products(gw, of_g, place.warp_row, of_v);
    UNROLL for (int n = 0; n < kStep / 8; n++) {
      UNROLL for (int i = 0; i < 4; i++) {
        const int half = SumsPlace::half(i), col = place.col_of(n, i);
        const float score = w[n][i] * scale + window[col - place.row_of(i) + kTile - 1];
        const float log_weight = first + col < seen[half] ? score - lse[half] : -infinity();
        const bool keeps = !dropped || masks[half].keeps(first + col);
        w[n][i] = through_softmax(log_weight, gw[n][i], along[half], keeps, kept_scale).score;
        if (gradient != nullptr) gradient->tile[place.row_of(i)][col] = w[n][i];
      }
    }
    add_weighted_rows(sums, w, of_k);
    if (gradient == nullptr) continue;
    __syncthreads();
    gradient->add_diagonals(lowest, bias.reach, below, above);
  }
  if (gradient != nullptr) gradient->write_buckets(bias_parts, bias, below, above);
  put_sums(of_q, place.warp_row, sums, shape.scale, shape.scale);
  __syncthreads();
  write_tile(of_q, work.at(gq, work.queries), gq.row, own, work.queries.count);
}

KERNEL attend_backward_queries(HeadRows q, HeadRows k, HeadRows v, HeadRows out, HeadRows g, HeadRows gq,
                               QueryFacts facts, AttentionShape shape, PositionBias bias,
                               MaskOptions options) {
  backward_queries(q, k, v, out, g, gq, facts, shape, bias, options, nullptr, nullptr);
}

KERNEL attend_backward_queries_and_bias(HeadRows q, HeadRows k, HeadRows v, HeadRows out, HeadRows g,
                                        HeadRows gq, QueryFacts facts, AttentionShape shape,
                                        PositionBias bias, MaskOptions options, float* bias_parts) {
  __shared__ BiasGradient gradient;
  backward_queries(q, k, v, out, g, gq, facts, shape, bias, options, &gradient, bias_parts);
}

// What backward needs of the queries of a step.
struct StepOfQueries {
  DEVICE void fill(const AttentionWork& work, int first, const QueryFacts& facts, const AttentionShape& shape,
                   const MaskOptions& options) {
    const int i = static_cast<int>(threadIdx.x), query = first + i;
    if (i >= kStep) return;
    const bool is_one = query < work.queries.count;
    const RowMask mask = work.mask(query, facts.row_keys, options);
    lse[i] = is_one ? facts.lse[work.fact(query, shape)] : infinity();
    along[i] = is_one ? facts.along[work.fact(query, shape)] : 0.0f;
    low[i] = mask.low;
    high[i] = mask.high;
    seen[i] = work.seen_by(query);
  }

  float lse[kStep], along[kStep];
  unsigned low[kStep], high[kStep];
  int seen[kStep];
};

// After attend_backward_queries, which gives facts.along. Rows of the tile of sums are keys, columns queries.
KERNEL attend_backward_keys(HeadRows q, HeadRows k, HeadRows v, HeadRows g, HeadRows gk, HeadRows gv,
                            QueryFacts facts, AttentionShape shape, PositionBias bias, MaskOptions options) {
  const AttentionWork work(shape, /*of_queries=*/false, kTile);
  const int own = work.tile.first;
  if (own >= work.key_rows.count) return;
  __shared__ Tile<kTile, kHeadDim> of_k, of_v;
  __shared__ Tile<kStep, kHeadDim> of_q, of_g;
  __shared__ BiasTable table;
  __shared__ float window[kTile + kStep];
  __shared__ StepOfQueries step;
  const SumsPlace place;
  const bool dropped = facts.row_keys != nullptr;
  const float scale = shape.scale * kLog2E, kept_scale = dropped ? options.scale : 1.0f;
  fill_tile(of_k, work.at(k, work.key_rows), k.row, own, work.keys);
  fill_tile(of_v, work.at(v, work.key_rows), v.row, own, work.keys);
  table.fill(bias, shape.heads);
  float sums_k[kSums][4] = {}, sums_v[kSums][4] = {};
  const int earliest = work.causal && own > work.ahead ? (own - work.ahead) / kStep * kStep : 0,
            end = own < work.keys ? work.queries.count : 0;
  for (int first = earliest; first < end; first += kStep) {
    __syncthreads();
    fill_tile(of_q, work.at(q, work.queries), q.row, first, work.queries.count);
    fill_tile(of_g, work.at(g, work.queries), g.row, first, work.queries.count);
    table.copy(window, own - first - (kStep - 1), kTile + kStep - 1, bias);
    step.fill(work, first, facts, shape, options);
    __syncthreads();
    float w[kStep / 8][4] = {}, gw[kStep / 8][4] = {};
    add_products(w, of_k, place.warp_row, of_q);
    add_products(gw, of_v, place.warp_row, of_g);
    UNROLL for (int n = 0; n < kStep / 8; n++) {
      UNROLL for (int i = 0; i < 4; i++) {
        const int row = place.row_of(i), col = place.col_of(n, i), key = own + row;
        const float score = w[n][i] * scale + window[row - col + kStep - 1];
        const float log_weight = key < step.seen[col] ? score - step.lse[col] : -infinity();
        const bool keeps = !dropped || random_bits(step.low[col], step.high[col], key) >= options.threshold;
        const WeightGradient of = through_softmax(log_weight, gw[n][i], step.along[col], keeps, kept_scale);
        w[n][i] = of.score;
        gw[n][i] = of.dropped;
      }
    }
    add_weighted_rows(sums_v, gw, of_g);
    add_weighted_rows(sums_k, w, of_q);
  }
  __syncthreads();
  put_sums(of_k, place.warp_row, sums_k, shape.scale, shape.scale);
  put_sums(of_v, place.warp_row, sums_v, 1.0f, 1.0f);
  __syncthreads();
  write_tile(of_k, work.at(gk, work.key_rows), gk.row, own, work.key_rows.count);
  write_tile(of_v, work.at(gv, work.key_rows), gv.row, own, work.key_rows.count);
}

// parts [blocks, heads, buckets] summed over the blocks, in one order: g_bias [buckets, heads]. A block has
// head blockIdx.x and bucket blockIdx.y.
KERNEL sum_bias_parts(const float* parts, float* g_bias, long long blocks, int heads, int buckets) {
  float sum = 0.0f;
  for (long long i = threadIdx.x; i < blocks; i += blockDim.x)
    sum += parts[(i * heads + blockIdx.x) * buckets + blockIdx.y];
  sum = over_block<Sum>(sum);
  if (threadIdx.x == 0) g_bias[static_cast<long long>(blockIdx.y) * heads + blockIdx.x] = sum;
}
