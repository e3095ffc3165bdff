#include "ops/cached_attention.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "trainer/base/strings.h"

#include "device/op.h"
#include "ops/kernels.h"

namespace trainer {
namespace {

constexpr int64_t kChunk = 128, kMostHeadDim = 512, kMostQueries = 8;  // as in cached_attention.cu

// The struct of cached_attention.cu.
struct CachedShape {
  int heads, kv_heads, head_dim, positions, chunks, in_own_slot, window;
  float scale, soft_cap;
  int64_t table_row, q_row, q_head, k_row, k_head, v_row, v_head, bias_head, always_row;
};

int64_t stride_of(const at::Tensor& x, int64_t dim) { return x.defined() ? x.stride(dim) : 0; }

// What both kernels take, and the tensors that it points to.
struct CachedCall {
  CachedCall(const at::Tensor& q_, const NewKeys& added_, const CachedKeys& keys, const CachedScores& how)
      : q(q_), added(added_) {
    TORCH_CHECK(q.size(2) <= kMostHeadDim, "cached_attention: heads of ", q.size(2));
    // Room that a window does not see has no blocks. What is always seen is only known on the GPU.
    const int64_t positions = keys.k.size(2);
    const bool only_window = how.window > 0 && !how.always.defined();
    const int64_t seen = only_window ? std::min(how.window, positions) : positions;
    const auto number = [](int64_t n) { return static_cast<int>(n); };
    shape = {number(q.size(1)),
             number(keys.k.size(1)),
             number(q.size(2)),
             number(positions),
             number((seen + kChunk - 1) / kChunk),
             keys.in_own_slot,
             number(how.window),
             static_cast<float>(how.scale),
             static_cast<float>(how.soft_cap),
             keys.table.stride(0),
             q.stride(0),
             q.stride(1),
             stride_of(added.k, 0),
             stride_of(added.k, 1),
             stride_of(added.v, 0),
             stride_of(added.v, 1),
             stride_of(how.bias, 0),
             stride_of(how.always, 0)};
    check_fits(q.size(0) * std::max<int64_t>(shape.chunks, shape.heads), "cached_attention");
  }

  // The queries of a key/value head that a block takes: a power of two.
  int64_t queries() const {
    int64_t queries = 1;
    while (queries < std::min<int64_t>(shape.heads / shape.kv_heads, kMostQueries)) queries *= 2;
    return queries;
  }
  const Kernels& kernels(const CachedKeys& keys) const {
    const int64_t width = q.is_meta() ? 1
                                      : width_for(q.size(2),
                                                  {keys.k, keys.v, added.k.defined() ? added.k : keys.k,
                                                   added.v.defined() ? added.v : keys.v},
                                                  {shape.k_row, shape.k_head, shape.v_row, shape.v_head});
    const char* type = q.scalar_type() == at::kFloat ? "float" : "bf16";
    return find_kernels(q.device(), kernel_file("cached_attention"),
                        concat("Element=", type, " kWidth=", width, " kQueries=", queries()));
  }

  at::Tensor q;
  NewKeys added;
  CachedShape shape{};
};

}  // namespace

at::Tensor cached_attention_gpu(const at::Tensor& q, const NewKeys& added, const CachedKeys& keys,
                                const CachedScores& how) {
  const CachedCall call(q, added, keys, how);
  const CachedShape& shape = call.shape;
  const int64_t rows = q.size(0), heads = shape.heads;
  const at::Tensor out = at::empty({rows, heads * shape.head_dim}, q.options());
  const at::Tensor parts =
      at::empty({rows, heads, shape.chunks, shape.head_dim + 2}, q.options().dtype(at::kFloat));
  const void* const table = elements(keys.table, q, at::kInt);
  const void* const always = elements(how.always, q, at::kInt);
  const int64_t groups = (heads / shape.kv_heads + call.queries() - 1) / call.queries();
  const Kernels& kernels = call.kernels(keys);
  kernels.start("attend_chunk", {rows * shape.chunks, shape.kv_heads * groups, kChunk}, elements(call.q, q),
                elements(call.added.k, q), elements(call.added.v, q), keys.k.mutable_data_ptr(),
                keys.v.mutable_data_ptr(), table, always, elements(how.bias, q, at::kFloat),
                parts.mutable_data_ptr(), shape);
  kernels.start("put_chunks_together", {rows * heads, 1, 128}, parts.const_data_ptr(), table, always,
                out.mutable_data_ptr(), shape);
  return out;
}

namespace {

constexpr Op kCachedAttention{"trainer::cached_attention", cached_attention_cpu, cached_attention_gpu};

}  // namespace

// Head_dim is contiguous.
at::Tensor cached_attention(const at::Tensor& q, const NewKeys& added, const CachedKeys& keys,
                            const CachedScores& scores) {
  const auto with_whole_heads = [](const at::Tensor& x) {
    return !x.defined() || x.stride(2) == 1 ? x : x.contiguous();
  };
  TORCH_CHECK(keys.k.is_contiguous() && keys.v.is_contiguous() && q.scalar_type() == keys.k.scalar_type() &&
                  keys.table.size(0) == q.size(0) && keys.table.stride(1) == 1,
              "cached_attention: queries ", q.sizes(), " to ", keys.k.sizes());
  return kCachedAttention(with_whole_heads(q), {with_whole_heads(added.k), with_whole_heads(added.v)}, keys,
                          scores);
}

}  // namespace trainer
