#include "nn/builtin_attention.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <omp.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "trainer/device/target_device.h"
#include "trainer/nn/cpu_products.h"

#include "nn/attention_rows.h"
#include "nn/product_packing.h"
#include "nn/product_tiles.h"

namespace trainer {
namespace {

constexpr int64_t kBlockQueries = 96;  // at a time: a multiple of the rows of every kind of tiles

const ProductTiles* tiles_for(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 ? bf16_tiles()
         : x.scalar_type() == at::kFloat  ? fp32_tiles()
                                          : nullptr;
}

// The tokens of a sample in one head, [tokens, head_dim], or some of them.
struct HeadRows {
  char* data;
  int64_t stride, rows, columns;
  bool bf16;

  HeadRows(const at::Tensor& x, int64_t head, int64_t first, int64_t tokens)
      : data(static_cast<char*>(const_cast<void*>(x.const_data_ptr())) +
             (head * x.stride(1) + first * x.stride(2)) * x.element_size()),
        stride(x.stride(2)),
        rows(tokens),
        columns(x.size(3)),
        bf16(x.scalar_type() == at::kBFloat16) {}
  HeadRows(void* at, int64_t row_stride, int64_t n, int64_t width, bool narrow)
      : data(static_cast<char*>(at)), stride(row_stride), rows(n), columns(width), bf16(narrow) {}
};

// An operand in the layout of tiles.
struct PackedLines {
  const float* data;
  int64_t words;  // of a line
};

// Where a product goes, in fp32.
struct Sum {
  float* data;
  int64_t stride, rows, columns;
};

// A thread's memory, taken piece by piece, and the products of what is in it.
class Workspace {
 public:
  Workspace(const ProductTiles& tiles, float* memory) : tiles_(tiles), at_(memory) {}

  float* take(int64_t words) {
    float* const out = at_;
    at_ += at::divup(words, 16) * 16;
    return out;
  }
  float* mark() const { return at_; }
  void release(float* mark) { at_ = mark; }

  // A matrix as the left or the right operand of a product, as it is or transposed.
  PackedLines x_of(const HeadRows& m) { return pack(pack_rows, m, m.rows, m.columns, tiles_.rows); }
  PackedLines x_of_transposed(const HeadRows& m) {
    return pack(pack_columns, m, m.columns, m.rows, tiles_.rows);
  }
  PackedLines y_of(const HeadRows& m) { return pack(pack_columns, m, m.columns, m.rows, tiles_.columns); }
  PackedLines y_of_transposed(const HeadRows& m) {
    return pack(pack_rows, m, m.rows, m.columns, tiles_.columns);
  }

  // sum = scale x y, or sum += scale x y, over the first `places`.
  void multiply(const PackedLines& x, const PackedLines& y, int64_t places, const Sum& sum, double scale,
                bool add) const {
    multiply_panels(tiles_, {x.data, tiles_.rows * x.words, tiles_.rows, 1},
                    {y.data, tiles_.columns * y.words, tiles_.columns, 1}, words_of(places), sum.rows,
                    sum.columns, sum.data, sum.stride, static_cast<float>(scale), add);
  }
  // Fp32 rows as operands: themselves, or rounded.
  HeadRows operand(float* data, int64_t stride, int64_t rows, int64_t columns) {
    if (!tiles_.bf16) return {data, stride, rows, columns, false};
    auto* const rounded = reinterpret_cast<c10::BFloat16*>(take(rows * stride / 2));
    tiles_.round(data, stride, rows, columns, rounded, stride);
    return {rounded, stride, rows, columns, true};
  }
  // Writes fp32 rows to a tensor's.
  void put(const float* from, const HeadRows& to) const {
    if (to.bf16) {
      tiles_.round(from, to.columns, to.rows, to.columns, reinterpret_cast<c10::BFloat16*>(to.data),
                   to.stride);
    } else {
      for (int64_t row = 0; row < to.rows; row++) {
        std::memcpy(to.data + row * to.stride * 4, from + row * to.columns,
                    static_cast<size_t>(to.columns) * 4);
      }
    }
  }
  // A tensor's rows in fp32.
  float* wide(const HeadRows& from) {
    float* const to = take(from.rows * from.columns);
    if (from.bf16) {
      widen_rows(reinterpret_cast<const c10::BFloat16*>(from.data), from.stride, from.rows, from.columns, to,
                 from.columns);
    } else {
      for (int64_t row = 0; row < from.rows; row++) {
        std::memcpy(to + row * from.columns, from.data + row * from.stride * 4,
                    static_cast<size_t>(from.columns) * 4);
      }
    }
    return to;
  }

 private:
  int64_t words_of(int64_t places) const { return tiles_.bf16 ? (places + 1) / 2 : places; }

  template <class Pack>
  PackedLines pack(Pack with, const HeadRows& matrix, int64_t lines, int64_t places, int64_t width) {
    const int64_t words = words_of(places);
    float* const to = take(at::divup(lines, width) * width * words);
    with(tiles_.bf16 ? PackedWords::pairs : PackedWords::fp32, matrix.data, matrix.stride, lines, places,
         width, to);
    return {to, words};
  }

  const ProductTiles& tiles_;
  float* at_;
};

enum class Pass { forward, backward };

// Fp32 words that a thread needs for samples of so many tokens.
int64_t workspace_words(Pass pass, int64_t tokens, int64_t head_dim) {
  const auto up = [](int64_t n) {
    return at::divup(n, 16) * 16 + 16;
  };  // at least whole panels of every kind
  const int64_t rows = up(std::min(kBlockQueries, tokens));
  const int64_t of_tokens = up(tokens) * up(head_dim), of_block = rows * up(head_dim),
                scores = rows * up(tokens);
  // K and V packed; Q packed, and what is mixed; the weights, in fp32 and packed, or rounded in half of that.
  if (pass == Pass::forward) return 2 * of_tokens + 2 * of_block + 2 * scores;
  // K, packed in two ways, V, and their gradients; Q and the output's gradient, packed in two ways, that and
  // the output in fp32, the gradient of Q, and the means; the weights and their gradient, in fp32 and packed,
  // the latter in two ways, or both rounded in half of that.
  return 5 * of_tokens + 8 * of_block + 5 * scores;
}

// Of one sample and the query heads that have its keys.
struct Group {
  int64_t first, tokens, kv_head, first_head, heads;
};

std::vector<Group> groups_of(const PackedHeads& in) {
  const int64_t kv_heads = in.k.size(1), heads = in.q.size(1) / kv_heads;
  std::vector<Group> groups;
  for (const TokenRange& sample : in.samples) {
    for (int64_t kv_head = 0; kv_head < kv_heads; kv_head++)
      groups.push_back({sample.first, sample.tokens, kv_head, kv_head * heads, heads});
  }
  return groups;
}

// Calls `with` for every group and a workspace; threads take groups as they become free.
template <class With>
void for_groups(const PackedHeads& in, Pass pass, With with) {
  if (in.samples.empty() && !in.q.is_meta()) return;
  const ProductTiles& tiles = *tiles_for(in.q);
  const int64_t words = workspace_words(pass, in.longest, in.q.size(3));
  const int threads = at::get_num_threads();
  const at::Tensor memory = at::empty({threads, words}, in.q.options().dtype(at::kFloat));
  if (memory.is_meta()) return;
  const std::vector<Group> groups = groups_of(in);
  std::atomic<size_t> next{0};
#pragma omp parallel num_threads(threads)
  {
    float* const own = memory.data_ptr<float>() + omp_get_thread_num() * words;
    for (size_t i; (i = next.fetch_add(1)) < groups.size();) {
      Workspace workspace(tiles, own);
      with(groups[i], workspace);
    }
  }
}

// Some queries of a head, and the keys that at least one of them sees: the first `keys` of the sample.
struct QueryBlock {
  int64_t head, first, rows, keys;

  HeadRows of(const at::Tensor& x, const Group& group) const { return {x, head, group.first + first, rows}; }
  float* log_sums(const at::Tensor& x, const Group& group) const {
    return x.data_ptr<float>() + head * x.stride(1) + (group.first + first) * x.stride(2);
  }
  ScoreRows rows_of(float* data, int64_t stride) const { return {data, stride, rows, keys, first + 1}; }
};

template <class With>
void for_blocks(const Group& group, Workspace& workspace, With with) {
  float* const mark = workspace.mark();
  for (int64_t head = group.first_head; head < group.first_head + group.heads; head++) {
    for (int64_t first = 0; first < group.tokens; first += kBlockQueries) {
      const int64_t rows = std::min(kBlockQueries, group.tokens - first);
      with(QueryBlock{head, first, rows, first + rows});
      workspace.release(mark);
    }
  }
}

int64_t score_stride(const Group& group) { return at::divup(group.tokens, 16) * 16; }

void forward_group(const PackedHeads& in, const at::Tensor& out, const at::Tensor& log_sums,
                   const Group& group, Workspace& ws) {
  const int64_t dim = in.q.size(3), stride = score_stride(group);
  const PackedLines k_transposed = ws.y_of_transposed({in.k, group.kv_head, group.first, group.tokens});
  const PackedLines v = ws.y_of({in.v, group.kv_head, group.first, group.tokens});
  for_blocks(group, ws, [&](const QueryBlock& block) {
    float* const scores = ws.take(block.rows * stride);
    ws.multiply(ws.x_of(block.of(in.q, group)), k_transposed, dim, {scores, stride, block.rows, block.keys},
                in.scale, /*add=*/false);
    softmax_rows(block.rows_of(scores, stride), block.log_sums(log_sums, group), log_sums.stride(2));
    const HeadRows weights = ws.operand(scores, stride, block.rows, block.keys);
    float* const mixed = ws.take(block.rows * dim);
    ws.multiply(ws.x_of(weights), v, block.keys, {mixed, dim, block.rows, dim}, 1.0, /*add=*/false);
    ws.put(mixed, block.of(out, group));
  });
}

void backward_group(const PackedHeads& in, const AttentionGradients& gradients, const Group& group,
                    Workspace& ws) {
  const int64_t dim = in.q.size(3), stride = score_stride(group);
  const HeadRows k{in.k, group.kv_head, group.first, group.tokens};
  const PackedLines k_transposed = ws.y_of_transposed(k), k_itself = ws.y_of(k);
  const PackedLines v_transposed = ws.y_of_transposed({in.v, group.kv_head, group.first, group.tokens});
  float *const gk = ws.take(group.tokens * dim), *const gv = ws.take(group.tokens * dim);
  std::fill_n(gk, group.tokens * dim, 0.0f);
  std::fill_n(gv, group.tokens * dim, 0.0f);
  for_blocks(group, ws, [&](const QueryBlock& block) {
    const int64_t rows = block.rows;
    const HeadRows q = block.of(in.q, group), g = block.of(gradients.g_out, group);
    float *const weights = ws.take(rows * stride), *const g_scores = ws.take(rows * stride);
    ws.multiply(ws.x_of(q), k_transposed, dim, {weights, stride, rows, block.keys}, in.scale, /*add=*/false);
    weights_of_rows(block.rows_of(weights, stride), block.log_sums(gradients.log_sums, group),
                    gradients.log_sums.stride(2));
    const HeadRows w = ws.operand(weights, stride, rows, block.keys);
    ws.multiply(ws.x_of_transposed(w), ws.y_of(g), rows, {gv, dim, block.keys, dim}, 1.0, /*add=*/true);

    ws.multiply(ws.x_of(g), v_transposed, dim, {g_scores, stride, rows, block.keys}, 1.0, /*add=*/false);
    float* const means = ws.take(rows);
    products_of_rows(ws.wide(g), ws.wide(block.of(gradients.out, group)), rows, dim, means);
    score_gradients(block.rows_of(g_scores, stride), weights, means, static_cast<float>(in.scale));
    const HeadRows gs = ws.operand(g_scores, stride, rows, block.keys);
    float* const gq = ws.take(rows * dim);
    ws.multiply(ws.x_of(gs), k_itself, block.keys, {gq, dim, rows, dim}, 1.0, /*add=*/false);
    ws.put(gq, block.of(gradients.gq, group));
    ws.multiply(ws.x_of_transposed(gs), ws.y_of(q), rows, {gk, dim, block.keys, dim}, 1.0, /*add=*/true);
  });
  ws.put(gk, {gradients.gk, group.kv_head, group.first, group.tokens});
  ws.put(gv, {gradients.gv, group.kv_head, group.first, group.tokens});
}

}  // namespace

bool suits_builtin_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  if (cpu_products() != CpuProducts::builtin || target_of(q.device()) != c10::kCPU || !tiles_for(q))
    return false;
  const auto by_token = [&](const at::Tensor& x) {
    return x.stride(3) == 1 && x.scalar_type() == q.scalar_type();
  };
  constexpr int64_t few_samples = 4;
  return by_token(q) && by_token(k) && by_token(v) && few_samples * k.size(1) >= at::get_num_threads();
}

void builtin_attention(const PackedHeads& in, const at::Tensor& out, const at::Tensor& log_sums) {
  for_groups(in, Pass::forward, [&](const Group& group, Workspace& workspace) {
    forward_group(in, out, log_sums, group, workspace);
  });
}

void builtin_attention_backward(const PackedHeads& in, const AttentionGradients& gradients) {
  AttentionGradients plain = gradients;
  if (plain.g_out.stride(3) != 1) plain.g_out = plain.g_out.contiguous();
  for_groups(in, Pass::backward,
             [&](const Group& group, Workspace& workspace) { backward_group(in, plain, group, workspace); });
}

}  // namespace trainer
