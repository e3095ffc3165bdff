// T5's attention between its two matrix products, the softmax and what surrounds it
// (src/ops/attention_weights.h). Open: Element, kWidth.
#include "ops/mask.cuh"

struct ScoreShape {
  int heads, rows, keys;
  unsigned count;    // rows of all pairs (sample, head)
  unsigned threads;  // per row: 32, or the whole block
};

constexpr int kKept = 16;  // elements of a row that a thread keeps in registers
constexpr int kPieces = kKept / kWidth;

// The mask of row `row` of `pair` (sample, head); without dropout row_keys is nullptr and all are kept.
DEVICE RowMask row_mask(const long long* row_keys, const ScoreShape& shape, unsigned pair, unsigned row,
                        const MaskOptions& options) {
  const unsigned sample = pair / shape.heads, head = pair % shape.heads;
  const long long key = row_keys == nullptr ? 0 : row_keys[static_cast<long long>(sample) * shape.rows + row];
  return RowMask(key + (static_cast<long long>(head) << 24), options);
}

// A thread's part of a row: kPieces times kWidth elements next to each other. Threads next to each other have
// pieces next to each other.
struct RowPart {
  DEVICE explicit RowPart(const ScoreShape& shape)
      : index(static_cast<unsigned>(thread_index()) / shape.threads),
        pair(index / shape.rows),
        row(index % shape.rows),
        lane(threadIdx.x % shape.threads),
        threads(shape.threads),
        keys(shape.keys),
        at(static_cast<long long>(index) * shape.keys) {}

  DEVICE int column(int piece) const { return static_cast<int>((piece * threads + lane) * kWidth); }

  template <class Operation>
  DEVICE float over_row(float x) const {
    return threads == 32 ? over_warp<Operation>(x) : over_block<Operation>(x);
  }

  unsigned index, pair, row, lane, threads;
  int keys;
  long long at;  // its place among the elements of all rows
};

// `visible`: number of keys that row 0 sees. before, unless nullptr, gets the weights before dropout.
KERNEL weights_forward(const Element* scores, const Element* bias, const long long* lengths,
                       const long long* row_keys, Element* out, Element* before, ScoreShape shape,
                       long long visible, float scale, MaskOptions options) {
  const RowPart part(shape);
  if (part.index >= shape.count) return;
  const int keys = shape.keys;
  const Element* row_bias =
      bias == nullptr ? nullptr
                      : bias + static_cast<long long>(part.pair % shape.heads) * (shape.rows + keys - 1) +
                            shape.rows - 1 - part.row;
  int seen = visible + part.row < keys ? static_cast<int>(visible + part.row) : keys;
  if (lengths != nullptr && lengths[part.pair / shape.heads] < seen)
    seen = static_cast<int>(lengths[part.pair / shape.heads]);
  const float nothing = -__int_as_float(0x7f800000);
  float kept[kKept], most = nothing;
  UNROLL for (int p = 0; p < kPieces; p++) {
    const int first = part.column(p);
    if (first >= seen) continue;
    const auto from = load<kWidth>(scores + part.at + first);
    float* here = kept + p * kWidth;
    UNROLL for (int i = 0; i < kWidth; i++) here[i] = rounded<Element>(wide(from.at[i]) * scale);
    if (row_bias != nullptr) {
      UNROLL for (int i = 0; i < kWidth; i++) here[i] = rounded<Element>(here[i] + wide(row_bias[first + i]));
    }
    UNROLL for (int i = 0; i < kWidth; i++) {
      if (first + i >= seen) here[i] = nothing;
      most = Most::of(here[i], most);
    }
  }
  most = part.over_row<Most>(most);
  float sum = 0.0f;
  UNROLL for (int p = 0; p < kPieces; p++) {
    if (part.column(p) >= seen) continue;
    UNROLL for (int i = 0; i < kWidth; i++) {
      float& x = kept[p * kWidth + i];
      x = expf(x - most);
      sum += x;
    }
  }
  const float inverse = 1.0f / part.over_row<Sum>(sum);
  const RowMask mask = row_mask(row_keys, shape, part.pair, part.row, options);
  UNROLL for (int p = 0; p < kPieces; p++) {
    const int first = part.column(p);
    if (first >= keys) continue;
    Pack<Element, kWidth> weights = {}, dropped = {};
    if (first < seen) {
      UNROLL for (int i = 0; i < kWidth; i++) {
        const float weight = rounded<Element>(kept[p * kWidth + i] * inverse);
        weights.at[i] = narrow<Element>(weight);
        if (row_keys == nullptr) {
          dropped.at[i] = weights.at[i];
        } else if (mask.keeps(first + i)) {
          dropped.at[i] = narrow<Element>(weight * mask.scale);
        }
      }
    }
    if (before != nullptr) store<kWidth>(before + part.at + first, weights);
    store<kWidth>(out + part.at + first, dropped);
  }
}

// The gradient of an element's weight before dropout, from that of the one after it.
DEVICE float through_dropout(Element grad, const long long* row_keys, const RowMask& mask, int column) {
  const float g = wide(grad);
  if (row_keys == nullptr) return g;
  return mask.keeps(column) ? rounded<Element>(g * mask.scale) : 0.0f;
}

// grad is the gradient of the dropped-out weights; `weights` are those before dropout. along [batch, heads,
// rows], unless nullptr, gets what weights_backward_bias needs for each row.
KERNEL weights_backward(const Element* grad, const Element* weights, const long long* row_keys, Element* out,
                        float* along, ScoreShape shape, float scale, MaskOptions options) {
  const RowPart part(shape);
  if (part.index >= shape.count) return;
  const RowMask mask = row_mask(row_keys, shape, part.pair, part.row, options);
  float through[kKept], weight[kKept], sum = 0.0f;
  UNROLL for (int p = 0; p < kPieces; p++) {
    const int first = part.column(p);
    if (first >= shape.keys) continue;
    const auto g = load<kWidth>(grad + part.at + first), w = load<kWidth>(weights + part.at + first);
    UNROLL for (int i = 0; i < kWidth; i++) {
      const int k = p * kWidth + i;
      through[k] = through_dropout(g.at[i], row_keys, mask, first + i);
      weight[k] = wide(w.at[i]);
      sum += through[k] * weight[k];
    }
  }
  sum = part.over_row<Sum>(sum);
  if (along != nullptr && part.lane == 0) along[part.index] = sum;
  UNROLL for (int p = 0; p < kPieces; p++) {
    const int first = part.column(p);
    if (first >= shape.keys) continue;
    Pack<Element, kWidth> to;
    UNROLL for (int i = 0; i < kWidth; i++) {
      const int k = p * kWidth + i;
      to.at[i] = narrow<Element>(weight[k] * (through[k] - sum) * scale);
    }
    store<kWidth>(out + part.at + first, to);
  }
}

// g_bias [batch, heads, rows + keys - 1]: the gradients before the scale, summed over the rows at each
// distance. One thread has one distance of the pair blockIdx.y, so that each sum has a fixed order.
KERNEL weights_backward_bias(const Element* grad, const Element* weights, const long long* row_keys,
                             const float* along, float* g_bias, ScoreShape shape, MaskOptions options) {
  const int rows = shape.rows, keys = shape.keys, distances = rows + keys - 1;
  const int distance = static_cast<int>(thread_index());
  if (distance >= distances) return;
  const unsigned pair = blockIdx.y;
  float sum = 0.0f;
  const int first = distance < rows - 1 ? rows - 1 - distance : 0;  // the row whose column is 0
  for (int row = first; row < rows; row++) {
    const int c = distance - (rows - 1) + row;
    if (c >= keys) break;
    const long long i = static_cast<long long>(pair) * rows + row, at = i * keys + c;
    const RowMask mask = row_mask(row_keys, shape, pair, row, options);
    sum += wide(weights[at]) * (through_dropout(grad[at], row_keys, mask, c) - along[i]);
  }
  g_bias[static_cast<long long>(pair) * distances + distance] = sum;
}

// by_distance [batch, heads, distances] summed over the batch and over the distances of a bucket: becomes
// g_bias [buckets, heads], or is added to it unless `first`. One block for head blockIdx.x and bucket
// blockIdx.y.
KERNEL add_by_bucket(const float* by_distance, const long long* buckets, float* g_bias, long long batch,
                     int heads, int distances, int first) {
  float sum = 0.0f;
  for (int i = threadIdx.x; i < distances; i += blockDim.x) {
    if (buckets[i] != blockIdx.y) continue;
    for (long long b = 0; b < batch; b++) sum += by_distance[(b * heads + blockIdx.x) * distances + i];
  }
  sum = over_block<Sum>(sum);
  if (threadIdx.x != 0) return;
  float* to = g_bias + static_cast<long long>(blockIdx.y) * heads + blockIdx.x;
  *to = first ? sum : *to + sum;
}
