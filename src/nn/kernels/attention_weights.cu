// What T5's attention computes between its matrix products (src/nn/attention_weights.h). Open: Element.
#include "nn/kernels/mask.cuh"

struct ScoreShape {
  int heads, rows, keys;
};

// The mask of row `row` of `pair` (sample, head); without dropout row_keys is nullptr and all are kept.
DEVICE RowMask row_mask(const long long* row_keys, const ScoreShape& shape, unsigned pair, unsigned row,
                        const MaskOptions& options) {
  const unsigned sample = pair / shape.heads, head = pair % shape.heads;
  const long long key = row_keys == nullptr ? 0 : row_keys[static_cast<long long>(sample) * shape.rows + row];
  return RowMask(key + (static_cast<long long>(head) << 24), options);
}

// One block per row, here and in weights_backward. `visible`: number of keys that row 0 sees. before, unless
// nullptr, gets the weights before dropout.
KERNEL weights_forward(const Element* scores, const Element* bias, const long long* lengths,
                       const long long* row_keys, Element* out, Element* before, ScoreShape shape,
                       long long visible, float scale, MaskOptions options) {
  const int rows = shape.rows, keys = shape.keys;
  const unsigned pair = blockIdx.x / rows, row = blockIdx.x % rows;
  const Element* from = scores + static_cast<long long>(blockIdx.x) * keys;
  Element* to = out + static_cast<long long>(blockIdx.x) * keys;
  const Element* row_bias =
      bias == nullptr
          ? nullptr
          : bias + static_cast<long long>(pair % shape.heads) * (rows + keys - 1) + rows - 1 - row;
  long long seen = visible + row < keys ? visible + row : keys;
  if (lengths != nullptr && lengths[pair / shape.heads] < seen) seen = lengths[pair / shape.heads];
  const auto score = [&](int c) {
    const float s = rounded<Element>(wide(from[c]) * scale);
    return row_bias == nullptr ? s : rounded<Element>(s + wide(row_bias[c]));
  };
  const int first = threadIdx.x, step = blockDim.x;
  float most = -__int_as_float(0x7f800000);
  for (int c = first; c < seen; c += step) most = Most::of(score(c), most);
  most = over_block<Most>(most);
  float sum = 0.0f;
  for (int c = first; c < seen; c += step) sum += expf(score(c) - most);
  const float inverse = 1.0f / over_block<Sum>(sum);
  const RowMask mask = row_mask(row_keys, shape, pair, row, options);
  for (int c = first; c < keys; c += step) {
    float weight = 0.0f;
    if (c < seen) weight = rounded<Element>(expf(score(c) - most) * inverse);
    if (before != nullptr) before[static_cast<long long>(blockIdx.x) * keys + c] = narrow<Element>(weight);
    if (row_keys != nullptr) weight = mask.keeps(c) ? weight * mask.scale : 0.0f;
    to[c] = narrow<Element>(weight);
  }
}

// grad is the gradient of the dropped-out weights; `weights` are those before dropout. along [batch, heads,
// rows], unless nullptr, gets what weights_backward_bias needs for each row.
KERNEL weights_backward(const Element* grad, const Element* weights, const long long* row_keys, Element* out,
                        float* along, ScoreShape shape, float scale, MaskOptions options) {
  const int keys = shape.keys;
  const long long at = static_cast<long long>(blockIdx.x) * keys;
  const RowMask mask = row_mask(row_keys, shape, blockIdx.x / shape.rows, blockIdx.x % shape.rows, options);
  const auto through = [&](int c) {
    const float g = wide(grad[at + c]);
    if (row_keys == nullptr) return g;
    return mask.keeps(c) ? rounded<Element>(g * mask.scale) : 0.0f;
  };
  float sum = 0.0f;
  for (int c = threadIdx.x; c < keys; c += blockDim.x) sum += through(c) * wide(weights[at + c]);
  sum = over_block<Sum>(sum);
  if (along != nullptr && threadIdx.x == 0) along[blockIdx.x] = sum;
  for (int c = threadIdx.x; c < keys; c += blockDim.x) {
    out[at + c] = narrow<Element>(wide(weights[at + c]) * (through(c) - sum) * scale);
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
    float through = wide(grad[at]);
    if (row_keys != nullptr) {
      const RowMask mask = row_mask(row_keys, shape, pair, row, options);
      through = mask.keeps(c) ? rounded<Element>(through * mask.scale) : 0.0f;
    }
    sum += wide(weights[at]) * (through - along[i]);
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
