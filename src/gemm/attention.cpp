#include "gemm/attention.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "gemm/attention_rows.h"
#include "gemm/product_workspace.h"

namespace trainer {
namespace {

enum class Pass { forward, backward };

// Fp32 words that a thread needs for samples of so many tokens.
int64_t workspace_words(Pass pass, int64_t tokens, int64_t head_dim) {
  const int64_t rows = std::min(kBlockQueries, tokens);
  const int64_t of_tokens = ProductWorkspace::words(tokens, head_dim),
                of_block = ProductWorkspace::words(rows, head_dim),
                scores = ProductWorkspace::words(rows, tokens);
  // K and V packed; Q packed, and what is mixed; the weights, in fp32 and packed, or rounded in half of that.
  if (pass == Pass::forward) return 2 * of_tokens + 2 * of_block + 2 * scores;
  // K, packed in two ways, V, and their gradients; Q and the output's gradient, packed in two ways, that and
  // the output in fp32, the gradient of Q, and the means; the weights and their gradient, in fp32 and packed,
  // the latter in two ways, or both rounded in half of that.
  return 5 * of_tokens + 8 * of_block + 5 * scores;
}

// One sample, and the query heads that share a key head.
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

template <class With>
void for_groups(const PackedHeads& in, Pass pass, With with) {
  const std::vector<Group> groups = groups_of(in);
  if (groups.empty() && !in.q.is_meta()) return;
  const ThreadWorkspaces workspaces(*attention_tiles(in.q), workspace_words(pass, in.longest, in.q.size(3)),
                                    in.q.options());
  workspaces.for_tasks(static_cast<int64_t>(groups.size()), [&](int64_t i, ProductWorkspace& workspace) {
    with(groups[static_cast<size_t>(i)], workspace);
  });
}

// Some queries of a head, and the keys that at least one of them sees: the first `keys` of the sample.
struct QueryBlock {
  int64_t head, first, rows, keys;

  MatrixRows of(const at::Tensor& x, const Group& group) const {
    return {x, 0, head, group.first + first, rows};
  }
  float* log_sums(const at::Tensor& x, const Group& group) const {
    return x.data_ptr<float>() + head * x.stride(1) + (group.first + first) * x.stride(2);
  }
  ScoreRows rows_of(float* data, int64_t stride) const { return {data, stride, rows, keys, first + 1}; }
};

template <class With>
void for_blocks(const Group& group, ProductWorkspace& workspace, With with) {
  float* const mark = workspace.mark();
  for (int64_t head = group.first_head; head < group.first_head + group.heads; head++) {
    for (int64_t first = 0; first < group.tokens; first += kBlockQueries) {
      const int64_t rows = std::min(kBlockQueries, group.tokens - first);
      with(QueryBlock{head, first, rows, first + rows});
      workspace.release(mark);
    }
  }
}

void forward_group(const PackedHeads& in, const at::Tensor& out, const at::Tensor& log_sums,
                   const Group& group, ProductWorkspace& ws) {
  const int64_t dim = in.q.size(3), stride = score_stride(group.tokens);
  const PackedLines k_transposed = ws.y_of_transposed({in.k, 0, group.kv_head, group.first, group.tokens});
  const PackedLines v = ws.y_of({in.v, 0, group.kv_head, group.first, group.tokens});
  for_blocks(group, ws, [&](const QueryBlock& block) {
    float* const scores = ws.take(block.rows * stride);
    ws.multiply(ws.x_of(block.of(in.q, group)), k_transposed, dim, {scores, stride, block.rows, block.keys},
                in.scale, /*add=*/false);
    softmax_rows(block.rows_of(scores, stride), block.log_sums(log_sums, group), log_sums.stride(2));
    const MatrixRows weights = ws.operand({scores, stride, block.rows, block.keys});
    float* const mixed = ws.take(block.rows * dim);
    ws.multiply(ws.x_of(weights), v, block.keys, {mixed, dim, block.rows, dim}, 1.0, /*add=*/false);
    ws.put(mixed, block.of(out, group));
  });
}

void backward_group(const PackedHeads& in, const AttentionGradients& gradients, const Group& group,
                    ProductWorkspace& ws) {
  const int64_t dim = in.q.size(3), stride = score_stride(group.tokens);
  const MatrixRows k{in.k, 0, group.kv_head, group.first, group.tokens};
  const PackedLines k_transposed = ws.y_of_transposed(k), k_itself = ws.y_of(k);
  const PackedLines v_transposed = ws.y_of_transposed({in.v, 0, group.kv_head, group.first, group.tokens});
  float *const gk = ws.take_zeros(group.tokens * dim), *const gv = ws.take_zeros(group.tokens * dim);
  for_blocks(group, ws, [&](const QueryBlock& block) {
    const int64_t rows = block.rows;
    const MatrixRows q = block.of(in.q, group), g = block.of(gradients.g_out, group);
    float *const weights = ws.take(rows * stride), *const g_scores = ws.take(rows * stride);
    ws.multiply(ws.x_of(q), k_transposed, dim, {weights, stride, rows, block.keys}, in.scale, /*add=*/false);
    weights_of_rows(block.rows_of(weights, stride), block.log_sums(gradients.log_sums, group),
                    gradients.log_sums.stride(2));
    const MatrixRows w = ws.operand({weights, stride, rows, block.keys});
    ws.multiply(ws.x_of_transposed(w), ws.y_of(g), rows, {gv, dim, block.keys, dim}, 1.0, /*add=*/true);

    ws.multiply(ws.x_of(g), v_transposed, dim, {g_scores, stride, rows, block.keys}, 1.0, /*add=*/false);
    float* const means = ws.take(rows);
    products_of_rows(ws.wide(g), ws.wide(block.of(gradients.out, group)), rows, dim, means);
    score_gradients(block.rows_of(g_scores, stride), weights, means, static_cast<float>(in.scale));
    const MatrixRows gs = ws.operand({g_scores, stride, rows, block.keys});
    float* const gq = ws.take(rows * dim);
    ws.multiply(ws.x_of(gs), k_itself, block.keys, {gq, dim, rows, dim}, 1.0, /*add=*/false);
    ws.put(gq, block.of(gradients.gq, group));
    ws.multiply(ws.x_of_transposed(gs), ws.y_of(q), rows, {gk, dim, block.keys, dim}, 1.0, /*add=*/true);
  });
  ws.put(gk, {gradients.gk, 0, group.kv_head, group.first, group.tokens});
  ws.put(gv, {gradients.gv, 0, group.kv_head, group.first, group.tokens});
}

}  // namespace

bool can_attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const auto by_token = [&](const at::Tensor& x) {
    return x.stride(3) == 1 && x.scalar_type() == q.scalar_type();
  };
  constexpr int64_t few_samples = 4;
  return attention_tiles(q) && by_token(q) && by_token(k) && by_token(v) &&
         few_samples * k.size(1) >= at::get_num_threads();
}

void builtin_attention(const PackedHeads& in, const at::Tensor& out, const at::Tensor& log_sums) {
  for_groups(in, Pass::forward, [&](const Group& group, ProductWorkspace& workspace) {
    forward_group(in, out, log_sums, group, workspace);
  });
}

void builtin_attention_backward(const PackedHeads& in, const AttentionGradients& gradients) {
  AttentionGradients plain = gradients;
  if (plain.g_out.stride(3) != 1) plain.g_out = plain.g_out.contiguous();
  for_groups(in, Pass::backward, [&](const Group& group, ProductWorkspace& workspace) {
    backward_group(in, plain, group, workspace);
  });
}

}  // namespace trainer
