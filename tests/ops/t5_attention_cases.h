// T5's attention by its definition, sample by sample, and cases of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "nn/attention.h"
#include "ops/attention_weights.h"
#include "ops/dropout.h"
#include "ops/t5_attention.h"
#include "support/reference.h"

namespace trainer {

struct T5AttentionCase {
  std::string name;
  int64_t head_dim, heads;
  std::vector<std::pair<int64_t, int64_t>> samples;  // queries and keys of each
  bool packed = false, causal = false, biased = true;
  double p = 0.0, scale = 1.0;
  bool bidirectional = true;

  std::vector<int64_t> queries() const { return numbers(&std::pair<int64_t, int64_t>::first); }
  std::vector<int64_t> keys() const { return numbers(&std::pair<int64_t, int64_t>::second); }
  std::vector<int64_t> numbers(int64_t std::pair<int64_t, int64_t>::*member) const {
    std::vector<int64_t> out;
    for (const auto& sample : samples) out.push_back(sample.*member);
    return out;
  }
};

inline int64_t sum_of(const std::vector<int64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), int64_t{0});
}

inline at::Tensor starts_of(const std::vector<int64_t>& lengths) {
  std::vector<int32_t> starts{0};
  for (const int64_t length : lengths) starts.push_back(starts.back() + static_cast<int32_t>(length));
  return at::tensor(starts, at::kInt);
}

inline constexpr int64_t kReach = 20, kBuckets = 12, kKey = 0x123456789abcdef;

// What the model gives it. Padded samples have as many queries as the longest, and all of them attend.
struct T5AttentionGiven {
  explicit T5AttentionGiven(const T5AttentionCase& c_) : c(c_) {
    Random random(31);
    const int64_t longest = std::ranges::max(c.queries()), most_keys = std::ranges::max(c.keys());
    const int64_t batch = c.packed ? 1 : std::ssize(c.samples);
    const int64_t rows = c.packed ? sum_of(c.queries()) : longest,
                  key_rows = c.packed ? sum_of(c.keys()) : most_keys;
    const auto by_position = [&](int64_t count) {
      // As projections that share a product give them.
      return random.normal({batch, count, 2 * c.heads, c.head_dim}, at::kBFloat16)
          .narrow(2, c.heads / 2, c.heads)
          .transpose(1, 2);
    };
    in.q = by_position(rows) * (1.0 / std::sqrt(static_cast<double>(c.head_dim)) / c.scale);
    in.k = by_position(key_rows);
    in.v = by_position(key_rows);
    in.causal = c.causal;
    in.scale = c.scale;
    in.p = c.p;
    in.dropout_key = kKey;
    in.row_keys = row_keys(at::arange(batch * rows).remainder(7).view({batch, rows}),
                           at::arange(batch * rows).view({batch, rows}));
    const RelativeBias bias(kBuckets, kReach, c.heads, c.bidirectional);
    if (c.biased) {
      in.bias_weight = random.normal({kBuckets, c.heads}, at::kBFloat16);
      in.bias_buckets = bias.buckets(kReach + 1, kReach + 1, 0, at::kCPU);
      const int64_t far = std::max(longest, most_keys);
      all_buckets = bias.buckets(far, far, 0, at::kCPU);
    }
    if (c.packed) {
      in.query_starts = starts_of(c.queries());
      in.key_starts = starts_of(c.keys());
    } else if (!c.causal) {
      in.key_lengths = at::tensor(c.keys(), at::kLong);
    }
    g = by_position(rows).contiguous();
  }

  T5AttentionInputs with(const Tensors& t) const {
    T5AttentionInputs out = in;
    std::tie(out.q, out.k, out.v) = std::tie(t[0], t[1], t[2]);
    if (c.biased) out.bias_weight = t[3];
    return out;
  }
  Tensors leaves() const {
    Tensors out{in.q, in.k, in.v};
    if (c.biased) out.push_back(in.bias_weight);
    return out;
  }

  const T5AttentionCase& c;
  T5AttentionInputs in;
  at::Tensor all_buckets, g;
};

// The definition, for each sample alone. t: q, k, v, weight of the bias.
inline at::Tensor definition(const T5AttentionGiven& given, const Tensors& t) {
  const T5AttentionCase& c = given.c;
  Tensors out;
  int64_t query = 0, key = 0;
  for (size_t s = 0; s < c.samples.size(); s++) {
    const auto [own, keys] = c.samples[s];
    const int64_t queries = c.packed ? own : given.in.q.size(2), sample = static_cast<int64_t>(s);
    const auto part = [&](const at::Tensor& x, int64_t first, int64_t rows) {
      return c.packed ? x.select(0, 0).narrow(1, first, rows) : x.select(0, sample).narrow(1, 0, rows);
    };
    at::Tensor scores =
        at::matmul(part(t[0], query, queries), part(t[1], key, keys).transpose(1, 2)) * c.scale;
    const at::Tensor distance = at::arange(keys).unsqueeze(0) - at::arange(queries).unsqueeze(1);
    if (c.biased) {
      const at::Tensor buckets = given.all_buckets.index({distance + given.all_buckets.numel() / 2});
      scores = scores + at::embedding(t[3], buckets).permute({2, 0, 1});
    }
    if (c.causal) scores = scores.masked_fill(distance.gt(c.packed ? 0 : keys - queries), -INFINITY);
    at::Tensor weights = at::softmax(scores, -1);
    if (c.p > 0) {
      const at::Tensor all = given.in.row_keys;
      const at::Tensor rows = c.packed ? all.narrow(1, query, queries) : all.narrow(0, sample, 1);
      const at::Tensor ones = at::ones({1, c.heads, queries, keys});
      weights = weights * dropout_apply(ones, keys_of_heads(rows, c.heads), kKey, c.p).select(0, 0);
    }
    out.push_back(at::matmul(weights, part(t[2], key, keys)));  // [H, queries, D]
    query += own;
    key += keys;
  }
  return c.packed ? at::cat(out, 1).unsqueeze(0) : at::stack(out);
}

inline std::vector<T5AttentionCase> t5_attention_cases() {
  using Pairs = std::vector<std::pair<int64_t, int64_t>>;
  return {
      T5AttentionCase{"one_tile", 64, 2, Pairs{{20, 20}}},
      T5AttentionCase{"one_token", 16, 2, Pairs{{1, 1}}},
      T5AttentionCase{"encoder", 64, 2, Pairs{{150, 150}, {150, 37}}, false, false, true, 0.1},
      T5AttentionCase{"decoder", 64, 2, Pairs{{130, 130}}, false, true, true, 0.1, 1.0, false},
      T5AttentionCase{"cross", 64, 2, Pairs{{70, 133}, {70, 20}}, false, false, false, 0.2},
      T5AttentionCase{"packed_encoder", 16, 4, Pairs{{5, 5}, {1, 1}, {130, 130}, {64, 64}, {63, 63}}, true,
                      false, true, 0.1},
      T5AttentionCase{"packed_decoder", 16, 2, Pairs{{65, 65}, {3, 3}, {64, 64}, {128, 128}}, true, true,
                      true, 0.1, 1.0, false},
      T5AttentionCase{"packed_cross", 16, 2, Pairs{{3, 90}, {70, 1}, {64, 64}}, true, false, false},
      T5AttentionCase{"wide_heads", 128, 2, Pairs{{40, 70}, {40, 33}}, false, false, true, 0.1},
      T5AttentionCase{"wide_heads_packed", 128, 2, Pairs{{33, 33}, {32, 32}, {5, 5}}, true, true, true, 0.1},
      T5AttentionCase{"scaled", 16, 2, Pairs{{50, 50}}, false, false, true, 0.0, 0.25}};
}

// Largest relative differences of the result and the gradients of q, k and v, and of the bias's.
inline constexpr double kBoundOfT5Attention = 5e-3, kBoundOfT5Bias = 1e-2;

}  // namespace trainer
