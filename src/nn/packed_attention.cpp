// Attention of packed samples: each is computed separately, so that no matrix over the whole row exists and
// nothing is computed between samples.
#include "nn/packed_attention.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device/target_device.h"
#include "gemm/attention.h"
#include "ops/attention_heads.h"
#include "ops/cpu_products.h"

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Queries that are processed together, with all keys that at least one of them sees.
struct Piece {
  int64_t first_query, queries, first_key, keys;
  at::Tensor mask;  // additive [queries, keys]; undefined: causal, and the keys are those of the queries

  at::Tensor of_queries(const at::Tensor& x) const { return x.narrow(2, first_query, queries); }
  at::Tensor of_keys(const at::Tensor& x) const { return x.narrow(2, first_key, keys); }
};

// One piece per sample. A sample longer than the window is divided into pieces of so many queries that most
// keys are in the window of most queries. All these pieces use the same mask.
std::vector<Piece> pieces_of(const std::vector<int64_t>& lengths, int64_t window,
                             const at::TensorOptions& options) {
  const int64_t rows = std::clamp<int64_t>(window, 32, 512);
  std::vector<Piece> pieces;
  at::Tensor mask;
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    if (window == 0 || length <= window) {
      pieces.push_back({begin, length, begin, length, {}});
      begin += length;
      continue;
    }
    if (!mask.defined()) mask = sliding_window_mask(rows, rows + window - 1, window, options);
    for (int64_t first = 0; first < length; first += rows) {
      const int64_t queries = std::min(rows, length - first), before = std::min(first, window - 1);
      const int64_t keys = before + queries;
      pieces.push_back({begin + first, queries, begin + first - before, keys,
                        mask.narrow(0, 0, queries).narrow(1, window - 1 - before, keys)});
    }
    begin += length;
  }
  return pieces;
}

at::Tensor wide(const at::Tensor& x) { return x.to(at::kFloat); }

std::optional<at::Tensor> optional(const at::Tensor& x) {
  return x.defined() ? std::optional(x) : std::nullopt;
}

// The split of the work: samples with built-in products, and pieces with LibTorch's operator.
struct Shares {
  bool builtin;
  PackedHeads heads;
  std::vector<Piece> pieces;
};

Shares shares_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                 const std::vector<int64_t>& lengths, double scale, int64_t window) {
  int64_t longest = std::min(*std::ranges::max_element(lengths), kMostBuiltinTokens);
  if (window > 0) longest = std::min(longest, window);  // longer samples are pieces with a mask
  Shares shares{
      multiplies_builtin(q.scalar_type()) && can_attend(q, k, v), {q, k, v, {}, longest, scale}, {}};
  for (Piece& piece : pieces_of(lengths, window, q.options().dtype(at::kFloat))) {
    if (shares.builtin && !piece.mask.defined() && piece.queries <= kMostBuiltinTokens) {
      shares.heads.samples.push_back({piece.first_query, piece.queries});
    } else {
      shares.pieces.push_back(std::move(piece));
    }
  }
  return shares;
}

struct HeadsMaker : torch::CustomClassHolder {
  explicit HeadsMaker(RemadeHeads::Make make) : make(std::move(make)) {}
  RemadeHeads::Make make;
};

// Our own products, or LibTorch's CPU operator, piece by piece, as one node of the graph. On meta the same,
// for the plan. Pieces are computed in fp32: in bf16 the operator makes a product of oneDNN for every head
// and tile, which takes longer than the product itself where samples are short, and far longer on processors
// without bf16.
struct PackedAttention : torch::autograd::Function<PackedAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const std::vector<int64_t>& lengths, double scale,
                            int64_t window, const std::shared_ptr<RemadeHeads>& remade) {
    const at::Tensor out = empty_by_position(q);
    const at::Tensor sums =
        at::empty({1, q.size(2), q.size(1)}, q.options().dtype(at::kFloat)).transpose(1, 2);
    variable_list saved{v, out, sums};
    const variable_list heads = remade ? remade->from() : variable_list{q, k};
    saved.insert(saved.end(), heads.begin(), heads.end());
    ctx->save_for_backward(saved);
    if (remade)
      ctx->saved_data["heads"] = c10::IValue::make_capsule(c10::make_intrusive<HeadsMaker>(remade->make()));
    ctx->saved_data["lengths"] = lengths;
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["window"] = window;
    const Shares shares = shares_of(q, k, v, lengths, scale, window);
    if (shares.builtin) builtin_attention(shares.heads, out, sums);
    for (const Piece& piece : shares.pieces) {
      const auto [result, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
          wide(piece.of_queries(q)), wide(piece.of_keys(k)), wide(piece.of_keys(v)), 0.0,
          !piece.mask.defined(), optional(piece.mask), scale);
      piece.of_queries(out).copy_(result);
      piece.of_queries(sums).copy_(logsumexp);
    }
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &v = saved[0], &out = saved[1], &sums = saved[2];
    const auto [q, k] = heads_of(ctx, {saved.begin() + 3, saved.end()});
    const std::vector<int64_t> lengths = ctx->saved_data["lengths"].toIntVector();
    const double scale = ctx->saved_data["scale"].toDouble();
    const int64_t window = ctx->saved_data["window"].toInt();
    const at::Tensor gq = empty_by_position(q), gk = empty_by_position(k), gv = empty_by_position(v);
    const Shares shares = shares_of(q, k, v, lengths, scale, window);
    if (window > 0) {  // keys are in several pieces
      gk.zero_();
      gv.zero_();
    }
    const auto put = [&](const at::Tensor& to, const at::Tensor& gradient) {
      window > 0 ? to.add_(gradient) : to.copy_(gradient);
    };
    if (shares.builtin) builtin_attention_backward(shares.heads, {grads[0], out, sums, gq, gk, gv});
    for (const Piece& piece : shares.pieces) {
      const auto [of_q, of_k, of_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          wide(piece.of_queries(grads[0])), wide(piece.of_queries(q)), wide(piece.of_keys(k)),
          wide(piece.of_keys(v)), wide(piece.of_queries(out)), piece.of_queries(sums), 0.0,
          !piece.mask.defined(), optional(piece.mask), scale);
      piece.of_queries(gq).copy_(of_q);
      put(piece.of_keys(gk), of_k);
      put(piece.of_keys(gv), of_v);
    }
    return {gq, gk, gv, {}, {}, {}, {}};
  }

 private:
  static QkPair heads_of(AutogradContext* ctx, const variable_list& saved) {
    const auto maker = ctx->saved_data.find("heads");
    if (maker == ctx->saved_data.end()) return {saved[0], saved[1]};
    return c10::static_intrusive_pointer_cast<HeadsMaker>(maker->second.toCapsule())->make(saved);
  }
};

// torch.nn.attention.varlen's operator: one kernel for the row, with windows and grouped heads.
at::Tensor by_flash_attention(const AttentionInputs& in, const Sequences& sequences, int64_t window) {
  const auto by_token = [](const at::Tensor& x) { return x.squeeze(0).transpose(0, 1); };
  std::optional<int64_t> before, behind;  // the query
  if (window > 0) {
    before = window - 1;
    behind = 0;
  }
  const at::Tensor out = std::get<0>(at::_flash_attention_forward(
      by_token(in.q), by_token(in.k), by_token(in.v), sequences.starts, sequences.starts, sequences.longest,
      sequences.longest, 0.0, /*is_causal=*/window == 0, /*return_debug_mask=*/false, in.scale, before,
      behind));
  if (in.remade) in.remade->replace_in(out);
  return out.transpose(0, 1).unsqueeze(0);
}

}  // namespace

at::Tensor attention_by_rows(const AttentionInputs& in, int64_t length) {
  const auto rows = [&](const at::Tensor& x) {
    return x.squeeze(0).unflatten(1, {-1, length}).transpose(0, 1);  // [rows, heads, length, head_dim]
  };
  AttentionInputs all = in;
  all.q = rows(in.q);
  all.k = rows(in.k);
  all.v = rows(in.v);
  all.causal = true;
  return attention(all).transpose(0, 1).flatten(1, 2).unsqueeze(0);
}

at::Tensor attention_one_by_one(const AttentionInputs& in, const Sequences& sequences, int64_t window) {
  std::vector<at::Tensor> outs;
  for (const Piece& piece : pieces_of(sequences.lengths, window, in.q.options().requires_grad(false))) {
    AttentionInputs part = in;
    part.q = piece.of_queries(in.q);
    part.k = piece.of_keys(in.k);
    part.v = piece.of_keys(in.v);
    part.mask = piece.mask;
    part.causal = !piece.mask.defined();
    outs.push_back(attention(part));
  }
  return at::cat(outs, 2);
}

// Of those that have tokens.
static std::vector<int64_t> lengths_of(const at::Tensor& starts) {
  std::vector<int64_t> lengths;
  const int32_t* const start = starts.const_data_ptr<int32_t>();
  for (int64_t i = 0; i + 1 < starts.numel(); i++)
    if (start[i + 1] > start[i]) lengths.push_back(start[i + 1] - start[i]);
  return lengths;
}

bool packs_in_one_kernel(at::ScalarType type, int64_t head_dim) {
  // Between 192 and 224 its backward pass needs more shared memory than consumer cards have.
  const bool fits = head_dim <= 192 || (head_dim > 224 && head_dim <= 256);
  return type == at::kBFloat16 && fits && head_dim % 8 == 0;
}

at::Tensor packed_attention(const AttentionInputs& in, const Sequences& sequences, int64_t window) {
  TORCH_CHECK(in.q.size(0) == 1 && !in.mask.defined(), "packed attention takes one row and no mask");
  if (target_of(in.q.device()) == c10::kCPU) {
    const auto attend = [&](const std::vector<int64_t>& lengths) {
      return PackedAttention::apply(in.q, in.k, in.v, lengths, in.scale, window, in.remade);
    };
    return sequences.lengths.empty() ? attend(lengths_of(sequences.starts)) : attend(sequences.lengths);
  }
  const std::vector<int64_t>& lengths = sequences.lengths;
  const bool one_length =
      !lengths.empty() && std::ranges::all_of(lengths, [&](int64_t length) { return length == lengths[0]; });
  if (one_length && (window == 0 || lengths[0] <= window)) return attention_by_rows(in, lengths[0]);
  return packs_in_one_kernel(in.q.scalar_type(), in.q.size(3)) ? by_flash_attention(in, sequences, window)
                                                               : attention_one_by_one(in, sequences, window);
}

}  // namespace trainer
