// Queries and keys: RMSNorm over each head, if there is one, and the rotary embedding (src/ops/rotate_qk.h).
// Open: Element, kWidth. Rounds where rms_norm.cu and rotate.cu do.
#include "ops/norm.cuh"

// Strides of queries or keys [batch, seq, heads, head_dim], in elements.
struct HeadStrides {
  long long batch, position, head;
};

struct QkShape {
  int q_heads, k_heads, v_heads, seq;
  int half, rest;         // head_dim is 2 * half, which are rotated in pairs, and `rest` that are not
  int lanes;              // threads that share a head: a power of two, at most 32
  long long table_batch;  // stride of the tables [1 or batch, seq, half]; 0: one table for all
};

DEVICE int pairs(const QkShape& shape) { return shape.half + shape.rest / 2; }  // column pairs in a head

// One head of one position.
struct QkHead {
  // In 32 bits, into which what the grid counts fits: dividing 64 takes longer than all else here.
  DEVICE QkHead(unsigned position_, int head_, const QkShape& shape)
      : is_q(head_ < shape.q_heads),
        is_v(head_ >= shape.q_heads + shape.k_heads),
        head(head_ - (is_q ? 0 : shape.q_heads) - (is_v ? shape.k_heads : 0)),
        heads(is_q ? shape.q_heads : shape.k_heads),
        row(position_),
        batch(position_ / static_cast<unsigned>(shape.seq)),
        position(position_ % static_cast<unsigned>(shape.seq)) {}

  DEVICE long long in(const HeadStrides& strides) const {
    return batch * strides.batch + position * strides.position + head * strides.head;
  }
  DEVICE long long index() const { return row * heads + head; }  // among all of q or of k
  DEVICE long long table(const QkShape& shape) const {
    return batch * shape.table_batch + position * shape.half;
  }

  bool is_q, is_v;
  int head, heads;
  long long row, batch, position;
};

// The columns of pair `pair` of a head and of the kWidth - 1 pairs behind it. The pairs that are rotated come
// first, then the rest.
struct PairPlace {
  DEVICE PairPlace(int pair, const QkShape& shape)
      : rotated(pair < shape.half),
        low(rotated ? pair : pair + shape.half),
        high(low + (rotated ? shape.half : shape.rest / 2)) {}
  bool rotated;
  int low, high;
};

// kWidth columns of both halves.
struct BothHalves {
  DEVICE BothHalves() = default;
  DEVICE BothHalves(const Element* head, const PairPlace& place)
      : low(load<kWidth>(head + place.low)), high(load<kWidth>(head + place.high)) {}
  DEVICE void store_to(Element* head, const PairPlace& place) const {
    store<kWidth>(head + place.low, low);
    store<kWidth>(head + place.high, high);
  }
  Pack<Element, kWidth> low, high;
};

// `direction` 1: rotated; -1: back. The tables are those of the head's position.
DEVICE BothHalves turned(const BothHalves& x, const PairPlace& place, const Element* cosines,
                         const Element* sines, float direction) {
  if (!place.rotated) return x;
  const auto cosine = load<kWidth>(cosines + place.low), sine = load<kWidth>(sines + place.low);
  BothHalves out;
  for (int k = 0; k < kWidth; k++) {
    const float a = wide(x.low.at[k]), b = wide(x.high.at[k]);
    const float co = wide(cosine.at[k]), si = wide(sine.at[k]) * direction;
    out.low.at[k] = narrow<Element>(rounded<Element>(a * co) - rounded<Element>(b * si));
    out.high.at[k] = narrow<Element>(rounded<Element>(b * co) + rounded<Element>(a * si));
  }
  return out;
}

// The sum over the lanes of a head, in each of them. All threads of a warp must call it.
DEVICE float over_lanes(float x, int lanes) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
  return x;
}

// `lanes` threads per head of a position, here and in rotate_qk_backward; `positions` in total. The weights
// and rstd are nullptr if there are no norms. Results are [batch, seq, heads, head_dim].
KERNEL rotate_qk_forward(const Element* q, const Element* k, const Element* q_weight, const Element* k_weight,
                         const Element* cosines, const Element* sines, Element* q_out, Element* k_out,
                         float* q_rstd, float* k_rstd, QkShape shape, HeadStrides q_in, HeadStrides k_in,
                         long long positions, float epsilon, int plus_one) {
  const int all = pairs(shape);
  const unsigned heads = shape.q_heads + shape.k_heads;
  const unsigned lanes = shape.lanes, group = static_cast<unsigned>(thread_index()) / lanes;
  const int lane = static_cast<int>(threadIdx.x % lanes), step = shape.lanes * kWidth;
  const bool works = group < positions * heads;
  const QkHead at(works ? group / heads : 0, works ? static_cast<int>(group % heads) : 0, shape);
  const Element* x = at.is_q ? q + at.in(q_in) : k + at.in(k_in);
  const Element* weight = at.is_q ? q_weight : k_weight;
  float r = 1.0f;
  if (q_weight != nullptr) {
    float sum = 0.0f;
    for (int c = lane * kWidth; works && c < all; c += step) {
      const BothHalves from(x, PairPlace(c, shape));
      for (int i = 0; i < kWidth; i++) {
        sum += wide(from.low.at[i]) * wide(from.low.at[i]);
        sum += wide(from.high.at[i]) * wide(from.high.at[i]);
      }
    }
    r = 1.0f / sqrtf(over_lanes(sum, shape.lanes) / static_cast<float>(2 * all) + epsilon);
    if (works && lane == 0) (at.is_q ? q_rstd : k_rstd)[at.index()] = r;
  }
  if (!works) return;
  Element* out = (at.is_q ? q_out : k_out) + at.index() * 2 * all;
  const long long table = at.table(shape);
  for (int c = lane * kWidth; c < all; c += step) {
    const PairPlace place(c, shape);
    BothHalves from(x, place);
    if (weight != nullptr) {
      const BothHalves by(weight, place);
      for (int i = 0; i < kWidth; i++) {
        from.low.at[i] =
            narrow<Element>(normalised(from.low.at[i], r, plus_one) * factor(by.low.at[i], plus_one));
        from.high.at[i] =
            narrow<Element>(normalised(from.high.at[i], r, plus_one) * factor(by.high.at[i], plus_one));
      }
    }
    turned(from, place, cosines + table, sines + table, 1.0f).store_to(out, place);
  }
}

// g_q and g_k: gradients of the results. q, k, weights and rstd are nullptr if there are no norms. The heads
// of g_v, if there are any, only move. The results have strides, so that they can lie side by side.
KERNEL rotate_qk_backward(const Element* g_q, const Element* g_k, const Element* g_v, const Element* q,
                          const Element* k, const Element* q_weight, const Element* k_weight,
                          const float* q_rstd, const float* k_rstd, const Element* cosines,
                          const Element* sines, Element* q_out, Element* k_out, Element* v_out, QkShape shape,
                          HeadStrides g_q_in, HeadStrides g_k_in, HeadStrides g_v_in, HeadStrides q_in,
                          HeadStrides k_in, HeadStrides q_to, HeadStrides k_to, long long positions,
                          int plus_one) {
  const int all = pairs(shape);
  const unsigned heads = shape.q_heads + shape.k_heads + shape.v_heads;
  const unsigned lanes = shape.lanes, group = static_cast<unsigned>(thread_index()) / lanes;
  const int lane = static_cast<int>(threadIdx.x % lanes), step = shape.lanes * kWidth;
  const bool works = group < positions * heads;
  const QkHead at(works ? group / heads : 0, works ? static_cast<int>(group % heads) : 0, shape);
  const bool turns = works && !at.is_v;
  const Element* g = at.is_q ? g_q + at.in(g_q_in) : at.is_v ? g_v + at.in(g_v_in) : g_k + at.in(g_k_in);
  const Element* x = at.is_q ? q + at.in(q_in) : k + at.in(k_in);
  const Element* weight = at.is_q ? q_weight : k_weight;
  const Element *cosine = cosines + at.table(shape), *sine = sines + at.table(shape);
  float r = 1.0f, along = 0.0f;
  if (q_weight != nullptr) {
    float sum = 0.0f;
    for (int c = lane * kWidth; turns && c < all; c += step) {
      const PairPlace place(c, shape);
      const BothHalves gradient = turned(BothHalves(g, place), place, cosine, sine, -1.0f);
      const BothHalves from(x, place), by(weight, place);
      for (int i = 0; i < kWidth; i++) {
        sum += wide(gradient.low.at[i]) * factor(by.low.at[i], plus_one) * wide(from.low.at[i]);
        sum += wide(gradient.high.at[i]) * factor(by.high.at[i], plus_one) * wide(from.high.at[i]);
      }
    }
    if (turns) r = (at.is_q ? q_rstd : k_rstd)[at.index()];
    along = over_lanes(sum, shape.lanes) * r * r / static_cast<float>(2 * all);
  }
  if (!works) return;
  Element* out = at.is_q ? q_out + at.in(q_to) : at.is_v ? v_out + at.in(q_to) : k_out + at.in(k_to);
  for (int c = lane * kWidth; c < all; c += step) {
    const PairPlace place(c, shape);
    if (at.is_v) {
      BothHalves(g, place).store_to(out, place);
      continue;
    }
    BothHalves gradient = turned(BothHalves(g, place), place, cosine, sine, -1.0f);
    if (weight != nullptr) {
      const BothHalves from(x, place), by(weight, place);
      for (int i = 0; i < kWidth; i++) {
        const float low = wide(gradient.low.at[i]) * factor(by.low.at[i], plus_one);
        const float high = wide(gradient.high.at[i]) * factor(by.high.at[i], plus_one);
        gradient.low.at[i] = narrow<Element>((low - wide(from.low.at[i]) * along) * r);
        gradient.high.at[i] = narrow<Element>((high - wide(from.high.at[i]) * along) * r);
      }
    }
    gradient.store_to(out, place);
  }
}

// sums [q_parts + k_parts, head_dim]: the weights' gradients, each summed over heads_per_part heads, counted
// over all positions. `lanes` threads per part, so that every sum has a fixed order.
KERNEL rotate_qk_backward_weight(const Element* g_q, const Element* g_k, const Element* q, const Element* k,
                                 const float* q_rstd, const float* k_rstd, const Element* cosines,
                                 const Element* sines, float* sums, QkShape shape, HeadStrides g_q_in,
                                 HeadStrides g_k_in, HeadStrides q_in, HeadStrides k_in, long long positions,
                                 long long q_parts, long long k_parts, long long heads_per_part,
                                 int plus_one) {
  const unsigned lanes = shape.lanes, group = static_cast<unsigned>(thread_index()) / lanes;
  const int columns = 2 * pairs(shape), lane = static_cast<int>(threadIdx.x % lanes);
  if (group >= q_parts + k_parts) return;
  const bool is_q = group < q_parts;
  const unsigned heads = is_q ? shape.q_heads : shape.k_heads;
  const long long first = (is_q ? group : group - q_parts) * heads_per_part, all = positions * heads;
  const long long last = first + heads_per_part < all ? first + heads_per_part : all;
  for (int c = lane * kWidth; c < columns / 2; c += shape.lanes * kWidth) {
    const PairPlace place(c, shape);
    Pack<float, kWidth> low = {}, high = {};
    for (unsigned n = first; n < last; n++) {
      const QkHead at(n / heads, static_cast<int>(n % heads) + (is_q ? 0 : shape.q_heads), shape);
      const Element* g = is_q ? g_q + at.in(g_q_in) : g_k + at.in(g_k_in);
      const Element* x = is_q ? q + at.in(q_in) : k + at.in(k_in);
      const long long table = at.table(shape);
      const BothHalves gradient = turned(BothHalves(g, place), place, cosines + table, sines + table, -1.0f);
      const BothHalves from(x, place);
      const float r = (is_q ? q_rstd : k_rstd)[at.index()];
      for (int i = 0; i < kWidth; i++) {
        low.at[i] += wide(gradient.low.at[i]) * normalised(from.low.at[i], r, plus_one);
        high.at[i] += wide(gradient.high.at[i]) * normalised(from.high.at[i], r, plus_one);
      }
    }
    store<kWidth>(sums + group * columns + place.low, low);
    store<kWidth>(sums + group * columns + place.high, high);
  }
}
