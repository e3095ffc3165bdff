#include "gemm/biased_attention.h"

#include <algorithm>
#include <optional>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/dropout_mask.h"
#include "gemm/attention.h"
#include "gemm/attention_rows.h"
#include "gemm/product_workspace.h"

namespace trainer {
namespace {

// Fp32 words that a thread needs.
int64_t biased_words(const BiasedHeads& in, bool backward) {
  const int64_t rows = std::min(kBlockQueries, in.most_queries), dim = in.q.size(3);
  const int64_t of_keys = ProductWorkspace::words(in.most_keys, dim),
                of_block = ProductWorkspace::words(rows, dim),
                scores = ProductWorkspace::words(rows, in.most_keys);
  // K and V packed; Q packed, and what is mixed; the weights, in fp32 and packed, or rounded in half of that.
  if (!backward) return 2 * of_keys + 2 * of_block + 2 * scores;
  // K, packed in two ways, V, and their gradients; Q and the output's gradient, packed in two ways, and the
  // gradient of Q; the weights, before dropout and after it, and their gradient, the latter two packed, one
  // of them in two ways, or both rounded in half of that.
  return 5 * of_keys + 5 * of_block + 6 * scores;
}

// One head of a sample.
struct HeadOfSample {
  const BiasedHeads& in;
  BiasedHeads::Sample sample;
  int64_t index, head;  // the sample's index, and a head of it

  HeadOfSample(const BiasedHeads& heads, int64_t task)
      : in(heads),
        sample(heads.samples[static_cast<size_t>(task / heads.q.size(1))]),
        index(task / heads.q.size(1)),
        head(task % heads.q.size(1)) {}

  MatrixRows keys_of(const at::Tensor& x) const {
    return {x, sample.row, head, sample.first_key, sample.keys};
  }
};

// Some of its queries, and the keys that at least one of them sees.
struct BlockOfHead {
  const HeadOfSample& of;
  int64_t first, rows, keys;

  MatrixRows queries_of(const at::Tensor& x) const {
    return {x, of.sample.row, of.head, of.sample.first_query + first, rows};
  }
  ScoreRows scores(float* data, int64_t stride) const {
    const int64_t visible = of.in.causal ? first + of.in.ahead + 1 : keys;
    return {data, stride, rows, keys, visible};
  }
  // The bias of the first query and key.
  const float* bias() const {
    const BiasedHeads& in = of.in;
    if (!in.bias.defined()) return nullptr;
    return in.bias.const_data_ptr<float>() + of.head * in.bias.size(1) + in.origin - first;
  }
  RowDropout dropout() const {
    const BiasedHeads& in = of.in;
    if (in.p == 0) return {};
    const int64_t row = of.sample.row * in.row_keys.size(1) + of.sample.first_query + first;
    return {in.row_keys.const_data_ptr<int64_t>() + row, dropout_key_of_head(of.head), in.dropout_key, in.p};
  }
};

template <class With>
void for_blocks_of(const HeadOfSample& head, ProductWorkspace& workspace, With with) {
  float* const mark = workspace.mark();
  const BiasedHeads::Sample& sample = head.sample;
  for (int64_t first = 0; first < sample.queries; first += kBlockQueries) {
    const int64_t rows = std::min(kBlockQueries, sample.queries - first);
    const int64_t seen = head.in.causal ? first + rows + head.in.ahead : sample.keys;
    with(BlockOfHead{head, first, rows, std::min(seen, sample.keys)});
    workspace.release(mark);
  }
}

void forward_of(const HeadOfSample& head, const at::Tensor& out, ProductWorkspace& ws) {
  const BiasedHeads& in = head.in;
  const int64_t dim = in.q.size(3), stride = score_stride(head.sample.keys);
  const PackedLines k_transposed = ws.y_of_transposed(head.keys_of(in.k)), v = ws.y_of(head.keys_of(in.v));
  for_blocks_of(head, ws, [&](const BlockOfHead& block) {
    float* const data = ws.take(block.rows * stride);
    ws.multiply(ws.x_of(block.queries_of(in.q)), k_transposed, dim, {data, stride, block.rows, block.keys},
                in.scale, /*add=*/false);
    const ScoreRows scores = block.scores(data, stride);
    biased_softmax_rows(scores, block.bias());
    drop_rows(scores, block.dropout(), data);
    const MatrixRows weights = ws.operand({data, stride, block.rows, block.keys});
    float* const mixed = ws.take(block.rows * dim);
    ws.multiply(ws.x_of(weights), v, block.keys, {mixed, dim, block.rows, dim}, 1.0, /*add=*/false);
    ws.put(mixed, block.queries_of(out));
  });
}

// The gradient of the bias, of each sample separately, so that the order of the sums is fixed: [H,
// distances], the distances of one sample behind those of the one before it.
struct SumsByDistance {
  at::Tensor sums, buckets;     // [1, H, distances] and [distances]
  std::vector<int64_t> starts;  // of each sample

  explicit SumsByDistance(const BiasedHeads& in) {
    // A sample has fewer distances than it has queries and keys.
    const int64_t most = in.q.size(0) * (in.q.size(2) + in.k.size(2));
    sums = at::zeros({1, in.q.size(1), most}, in.bias.options());
    buckets = at::zeros({most}, in.buckets.options());
    if (buckets.is_meta()) return;
    const at::Tensor all = in.buckets.contiguous();
    int64_t* to = buckets.data_ptr<int64_t>();
    int64_t start = 0;
    for (const BiasedHeads::Sample& sample : in.samples) {
      const int64_t distances = sample.queries + sample.keys - 1;
      std::copy_n(all.const_data_ptr<int64_t>() + in.origin - (sample.queries - 1), distances, to + start);
      starts.push_back(start);
      start += distances;
    }
  }
  // That of the block's first query and key.
  float* of(const BlockOfHead& block) const {
    const HeadOfSample& head = block.of;
    return sums.data_ptr<float>() + head.head * sums.size(2) + starts[static_cast<size_t>(head.index)] +
           head.sample.queries - 1 - block.first;
  }
};

void backward_of(const HeadOfSample& head, const BiasedGradients& to, const SumsByDistance* by_distance,
                 ProductWorkspace& ws) {
  const BiasedHeads& in = head.in;
  const int64_t dim = in.q.size(3), keys = head.sample.keys, stride = score_stride(keys);
  const MatrixRows k = head.keys_of(in.k);
  const PackedLines k_transposed = ws.y_of_transposed(k), k_itself = ws.y_of(k);
  const PackedLines v_transposed = ws.y_of_transposed(head.keys_of(in.v));
  float *const gk = ws.take_zeros(keys * dim), *const gv = ws.take_zeros(keys * dim);
  for_blocks_of(head, ws, [&](const BlockOfHead& block) {
    const int64_t rows = block.rows;
    const MatrixRows q = block.queries_of(in.q), g = block.queries_of(to.g_out);
    float *const weights = ws.take(rows * stride), *const gradient = ws.take(rows * stride);
    const WideRows all{gradient, stride, rows, block.keys};
    ws.multiply(ws.x_of(q), k_transposed, dim, {weights, stride, rows, block.keys}, in.scale,
                /*add=*/false);
    biased_softmax_rows(block.scores(weights, stride), block.bias());
    float* dropped = weights;
    if (in.p > 0) {
      dropped = ws.take(rows * stride);
      drop_rows(block.scores(weights, stride), block.dropout(), dropped);
    }
    ws.multiply(ws.x_of_transposed(ws.operand({dropped, stride, rows, block.keys})), ws.y_of(g), rows,
                {gv, dim, block.keys, dim}, 1.0, /*add=*/true);

    ws.multiply(ws.x_of(g), v_transposed, dim, all, 1.0, /*add=*/false);
    biased_score_gradients(block.scores(gradient, stride), weights, block.dropout(),
                           static_cast<float>(in.scale), by_distance ? by_distance->of(block) : nullptr);
    const MatrixRows gs = ws.operand(all);
    float* const gq = ws.take(rows * dim);
    ws.multiply(ws.x_of(gs), k_itself, block.keys, {gq, dim, rows, dim}, 1.0, /*add=*/false);
    ws.put(gq, block.queries_of(to.gq));
    ws.multiply(ws.x_of_transposed(gs), ws.y_of(q), rows, {gk, dim, block.keys, dim}, 1.0, /*add=*/true);
  });
  ws.put(gk, head.keys_of(to.gk));
  ws.put(gv, head.keys_of(to.gv));
}

int64_t tasks_of(const BiasedHeads& in) { return static_cast<int64_t>(in.samples.size()) * in.q.size(1); }

}  // namespace

void BiasedHeads::set_bias(const at::Tensor& weight, const at::Tensor& of_distances, int64_t distance_0) {
  if (weight.defined()) bias = weight.to(at::kFloat).t().index_select(1, of_distances);
  buckets = of_distances;
  origin = distance_0;
}

bool can_attend(const BiasedHeads& in) {
  const auto by_token = [&](const at::Tensor& x) {
    return x.stride(3) == 1 && x.scalar_type() == in.q.scalar_type();
  };
  const bool plain_keys = !in.row_keys.defined() || in.row_keys.is_contiguous();
  return attention_tiles(in.q) && by_token(in.q) && by_token(in.k) && by_token(in.v) && plain_keys &&
         std::max(in.most_queries, in.most_keys) <= kMostBuiltinTokens &&
         tasks_of(in) >= at::get_num_threads();
}

void builtin_biased_attention(const BiasedHeads& in, const at::Tensor& out) {
  const ThreadWorkspaces workspaces(*attention_tiles(in.q), biased_words(in, /*backward=*/false),
                                    in.q.options());
  workspaces.for_tasks(tasks_of(in), [&](int64_t task, ProductWorkspace& workspace) {
    forward_of(HeadOfSample(in, task), out, workspace);
  });
}

BiasSums builtin_biased_attention_backward(const BiasedHeads& in, const BiasedGradients& gradients,
                                           bool needs_bias) {
  BiasedGradients to = gradients;
  if (to.g_out.stride(3) != 1) to.g_out = to.g_out.contiguous();
  std::optional<SumsByDistance> by_distance;
  if (needs_bias) by_distance.emplace(in);
  const SumsByDistance* const sums = by_distance ? &*by_distance : nullptr;
  const ThreadWorkspaces workspaces(*attention_tiles(in.q), biased_words(in, /*backward=*/true),
                                    in.q.options());
  workspaces.for_tasks(tasks_of(in), [&](int64_t task, ProductWorkspace& workspace) {
    backward_of(HeadOfSample(in, task), to, sums, workspace);
  });
  return sums ? BiasSums{sums->sums, sums->buckets} : BiasSums{};
}

}  // namespace trainer
