#include "ops/t5_attention.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "trainer/base/strings.h"
#include "trainer/device/device.h"

#include "device/op.h"
#include "ops/attention_heads.h"
#include "ops/kernels.h"
#include "ops/plain_view.h"

namespace trainer {
namespace {

// The structs are those of t5_attention.cu.
struct HeadRows {
  // x [B, H, rows, D]. Packed samples, in one row, are told apart by their starts alone.
  explicit HeadRows(const at::Tensor& x)
      : data(x.is_meta() ? nullptr : const_cast<void*>(x.const_data_ptr())),
        sample(x.size(0) == 1 ? 0 : x.stride(0)),
        row(x.stride(2)),
        head(x.stride(1)) {}

  void* data;
  int64_t sample, row, head;
};

struct AttentionShape {
  int64_t all_queries;
  int heads, samples, queries, keys;
  const void *query_starts, *key_starts, *key_lengths;
  int causal, ahead;
  float scale;
};

struct PositionBias {
  const void *weight, *bucket_of;
  int reach, buckets;
};

struct QueryFacts {
  const void* row_keys;
  void *lse, *along;
};

// As the kernel takes it: a head's numbers next to each other, and rows that begin at multiples of 16 bytes.
at::Tensor readable(const at::Tensor& x) {
  const bool next = x.stride(3) == 1 && x.scalar_type() == at::kBFloat16;
  return next && width_for(x.size(3), {x}, {x.stride(0), x.stride(1), x.stride(2)}) > 1 ? x : x.contiguous();
}

// Of a tensor that need not be there, its contiguous form.
at::Tensor whole(const at::Tensor& x) { return x.defined() ? x.contiguous() : x; }

// What the kernels of both directions take, and the tensors that it points to.
struct Call {
  explicit Call(const T5AttentionInputs& in_)
      : in(in_), q(readable(in.q)), k(readable(in.k)), v(readable(in.v)), mask(in.dropout_key, in.p) {
    in.bias_weight = whole(in.bias_weight);
    in.bias_buckets = whole(in.bias_buckets);
    in.key_lengths = whole(in.key_lengths);
    in.row_keys = in.p > 0 ? whole(in.row_keys) : at::Tensor();
    TORCH_CHECK(packed() == in.key_starts.defined() && (!packed() || q.size(0) == 1),
                "t5_attention: packed samples are in one row");
    check_fits(std::max(q.size(2), k.size(2)), "t5_attention");
    const int64_t samples = packed() ? in.query_starts.numel() - 1 : q.size(0);
    shape = {q.size(0) * q.size(2),
             static_cast<int>(q.size(1)),
             static_cast<int>(samples),
             static_cast<int>(q.size(2)),
             static_cast<int>(k.size(2)),
             elements(in.query_starts, q, at::kInt),
             elements(in.key_starts, q, at::kInt),
             elements(in.key_lengths, q, at::kLong),
             static_cast<int>(in.causal),
             packed() ? 0 : static_cast<int>(k.size(2) - q.size(2)),
             static_cast<float>(in.scale)};
    if (!in.bias_weight.defined()) return;
    bias = {elements(in.bias_weight, q), elements(in.bias_buckets, q, at::kLong),
            static_cast<int>(in.bias_buckets.numel() / 2), static_cast<int>(in.bias_weight.size(0))};
    TORCH_CHECK(bias.reach <= kFurthestBias, "t5_attention: a bias of ", bias.reach, " distances");
  }

  bool packed() const { return in.query_starts.defined(); }
  // A block for each tile of rows and each head (OwnTile in t5_attention.cu).
  KernelGrid grid(int64_t rows) const {
    const int64_t warps = q.size(3) <= 64 ? 4 : 2, tile = 16 * warps;
    const int64_t blocks = packed() ? rows / tile + shape.samples : (rows + tile - 1) / tile * shape.samples;
    return {shape.samples == 0 || rows == 0 ? 0 : blocks, q.size(1), warps * 32};
  }
  QueryFacts facts(const at::Tensor& lse, const at::Tensor& along) const {
    return {elements(in.row_keys, q, at::kLong), lse.mutable_data_ptr(),
            along.defined() ? along.mutable_data_ptr() : nullptr};
  }
  const Kernels& kernels() const {
    return find_kernels(q.device(), kernel_file("t5_attention"), concat("kHeadDim=", q.size(3)));
  }

  T5AttentionInputs in;
  at::Tensor q, k, v;
  KernelMask mask;
  AttentionShape shape{};
  PositionBias bias{};
};

// Gradients for projections of the same input are columns of one matrix, which then is multiplied at once: in
// self-attention, which has a bias, those of q, k and v, else those of k and v.
T5AttentionGradients empty_gradients(const Call& call) {
  const bool self = call.in.bias_weight.defined() && call.q.size(2) == call.k.size(2);
  const at::Tensor& k = call.k;
  const at::Tensor all = at::empty({k.size(0), k.size(2), self ? 3 : 2, k.size(1), k.size(3)}, k.options());
  const int64_t heads = k.size(1), dim = k.size(3);
  const auto part = [&](int64_t i) {
    return plain_view(all, k.sizes(), {all.stride(0), dim, all.stride(1), 1}, i * heads * dim);
  };
  if (self) return {part(0), part(1), part(2), {}};
  return {empty_by_position(call.q), part(0), part(1), {}};
}

std::tuple<at::Tensor, at::Tensor> t5_attention_gpu(const T5AttentionInputs& in) {
  const Call call(in);
  const at::Tensor out = empty_by_position(call.q);
  const at::Tensor lse =
      at::empty({call.q.size(1), call.shape.all_queries}, call.q.options().dtype(at::kFloat));
  call.kernels().start("attend", call.grid(call.q.size(2)), HeadRows(call.q), HeadRows(call.k),
                       HeadRows(call.v), HeadRows(out), call.facts(lse, {}), call.shape, call.bias,
                       call.mask);
  return {out, lse};
}

T5AttentionGradients t5_attention_backward_gpu(const T5AttentionInputs& in, const at::Tensor& g_,
                                               const at::Tensor& out, const at::Tensor& lse,
                                               bool needs_bias) {
  const Call call(in);
  const at::Tensor g = readable(g_), along = at::empty_like(lse);
  T5AttentionGradients to = empty_gradients(call);
  const Kernels& kernels = call.kernels();
  const KernelGrid of_queries = call.grid(call.q.size(2));
  const QueryFacts facts = call.facts(lse, along);
  const HeadRows q(call.q), k(call.k), v(call.v), of_g(g), of_out(out);
  if (needs_bias) {
    const int64_t heads = call.shape.heads, buckets = call.bias.buckets;
    const at::Tensor parts = at::empty({of_queries.x, heads, buckets}, lse.options());
    to.bias = at::empty({buckets, heads}, lse.options());
    kernels.start("attend_backward_queries_and_bias", of_queries, q, k, v, of_out, of_g, HeadRows(to.q),
                  facts, call.shape, call.bias, call.mask, parts.mutable_data_ptr());
    kernels.start("sum_bias_parts", KernelGrid{heads, buckets, 128}, parts.const_data_ptr(),
                  to.bias.mutable_data_ptr(), of_queries.x, static_cast<int>(heads),
                  static_cast<int>(buckets));
  } else {
    kernels.start("attend_backward_queries", of_queries, q, k, v, of_out, of_g, HeadRows(to.q), facts,
                  call.shape, call.bias, call.mask);
  }
  kernels.start("attend_backward_keys", call.grid(call.k.size(2)), q, k, v, of_g, HeadRows(to.k),
                HeadRows(to.v), facts, call.shape, call.bias, call.mask);
  return to;
}

// A CPU attends with its own products (nn/attention.h, attention_recomputed()).
std::tuple<at::Tensor, at::Tensor> t5_attention_cpu(const T5AttentionInputs&) {
  TORCH_CHECK(false, "t5_attention: only a GPU has this operator");
}
T5AttentionGradients t5_attention_backward_cpu(const T5AttentionInputs&, const at::Tensor&, const at::Tensor&,
                                               const at::Tensor&, bool) {
  TORCH_CHECK(false, "t5_attention: only a GPU has this operator");
}

constexpr Op kT5Attention{"trainer::t5_attention", t5_attention_cpu, t5_attention_gpu};
constexpr Op kT5AttentionBackward{"trainer::t5_attention_backward", t5_attention_backward_cpu,
                                  t5_attention_backward_gpu};

}  // namespace

// A plan for a GPU that is not here is that of a GPU with tensor cores for bf16.
bool takes_t5_attention(c10::Device device, at::ScalarType type, int64_t head_dim) {
  if (!runs_on_gpu(device) || type != at::kBFloat16 || head_dim % 16 != 0 || head_dim > 128) return false;
  return device.is_cpu() || computes_in_bf16(c10::Device(c10::kCUDA, std::max<int8_t>(device.index(), 0)));
}

std::tuple<at::Tensor, at::Tensor> t5_attention(const T5AttentionInputs& in) { return kT5Attention(in); }

T5AttentionGradients t5_attention_backward(const T5AttentionInputs& in, const at::Tensor& g,
                                           const at::Tensor& out, const at::Tensor& lse, bool needs_bias) {
  return kT5AttentionBackward(in, g, out, lse, needs_bias);
}

}  // namespace trainer
