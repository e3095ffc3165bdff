#include "ops/rotate_qk.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include <ATen/ATen.h>

#include "device/op.h"
#include "ops/kernels.h"

namespace trainer {
namespace {

// The same as in rotate_qk.cu.
struct HeadStrides {
  explicit HeadStrides(const at::Tensor& x) : batch(x.stride(0)), position(x.stride(1)), head(x.stride(2)) {}
  int64_t batch, position, head;
};
struct QkShape {
  int q_heads, k_heads, v_heads, seq, half, rest, lanes;
  int64_t table_batch;
};

// Heads of head_dim elements that are together in memory.
at::Tensor with_whole_heads(const at::Tensor& x) { return x.stride(3) == 1 ? x : x.contiguous(); }

// One call's sizes and kernels. All tensors are [batch, seq, heads, head_dim].
struct QkCall {
  QkCall(const at::Tensor& q, const at::Tensor& k, const at::Tensor& cos_, const at::Tensor& sin_)
      : cos(cos_.contiguous()), sin(sin_.contiguous()), positions(q.size(0) * q.size(1)) {
    const int64_t seq = q.size(1), half = cos.size(-1), rest = q.size(3) - 2 * half;
    const bool of_each_row = cos.numel() > seq * half;
    TORCH_CHECK(rest >= 0 && rest % 2 == 0 && cos.numel() == (of_each_row ? q.size(0) : 1) * seq * half &&
                    sin.numel() == cos.numel(),
                "rotate_qk: q ", q.sizes(), " with tables ", cos.sizes());
    shape = {static_cast<int>(q.size(2)), static_cast<int>(k.size(2)), 0, static_cast<int>(seq),
             static_cast<int>(half),      static_cast<int>(rest),      1, of_each_row ? seq * half : 0};
  }

  // Every tensor that is read is in one of the two lists; those in `strided` are heads.
  void find(std::initializer_list<at::Tensor> strided, std::initializer_list<at::Tensor> others) {
    const int64_t cols = std::gcd(shape.half, shape.rest / 2);
    width = width_for(cols, {cos, sin});
    for (const at::Tensor& x : strided) {
      width = std::min(width, width_for(cols, {x}, {x.stride(0), x.stride(1), x.stride(2)}));
    }
    for (const at::Tensor& x : others) width = std::min(width, width_for(cols, {x}));
    const auto packs = static_cast<uint64_t>((shape.half + shape.rest / 2) / width);
    shape.lanes = static_cast<int>(std::min<uint64_t>(std::bit_floor(packs), 32));
    check_fits(positions * heads() * shape.lanes, "rotate_qk");
    kernels = &kernels_for(*strided.begin(), "rotate_qk", width);
  }

  int64_t heads() const { return shape.q_heads + shape.k_heads + shape.v_heads; }
  KernelGrid grid(int64_t groups) const { return grid_of(groups * shape.lanes); }

  at::Tensor cos, sin;
  int64_t positions, width = 1;
  QkShape shape{};
  const Kernels* kernels = nullptr;
};

RotatedQk rotate_qk_gpu(const QkPair& in, const QkNorms& norms, const at::Tensor& cos,
                        const at::Tensor& sin) {
  const auto& [q_weight, k_weight, epsilon, plus_one] = norms;
  const at::Tensor q = with_whole_heads(in.q), k = with_whole_heads(in.k);
  const at::Tensor by_q = q_weight ? q_weight->contiguous() : at::Tensor();
  const at::Tensor by_k = k_weight ? k_weight->contiguous() : at::Tensor();
  QkCall call(q, k, cos, sin);
  call.find({q, k}, {q_weight ? by_q : q, k_weight ? by_k : k});
  at::Tensor q_out = at::empty(q.sizes(), q.options()), k_out = at::empty(k.sizes(), k.options());
  at::Tensor q_rstd, k_rstd;
  if (q_weight) {
    q_rstd = at::empty({call.positions * q.size(2)}, q.options().dtype(at::kFloat));
    k_rstd = at::empty({call.positions * k.size(2)}, q_rstd.options());
  }
  call.kernels->start(
      "rotate_qk_forward", call.grid(call.positions * call.heads()), elements(q, q), elements(k, q),
      elements(by_q, q), elements(by_k, q), elements(call.cos, q), elements(call.sin, q),
      q_out.mutable_data_ptr(), k_out.mutable_data_ptr(), q_weight ? q_rstd.mutable_data_ptr() : nullptr,
      q_weight ? k_rstd.mutable_data_ptr() : nullptr, call.shape, HeadStrides(q), HeadStrides(k),
      call.positions, static_cast<float>(epsilon), static_cast<int>(plus_one));
  return {{q_out.transpose(1, 2), k_out.transpose(1, 2)}, {q_rstd, k_rstd}};
}

// With values: columns of one matrix.
std::array<at::Tensor, 3> place_for_gradients(const at::Tensor& gq, const at::Tensor& gk,
                                              const at::Tensor& gv) {
  if (!gv.defined()) return {at::empty(gq.sizes(), gq.options()), at::empty(gk.sizes(), gk.options()), {}};
  const int64_t q = gq.size(2), k = gk.size(2), v = gv.size(2);
  const at::Tensor all = at::empty({gq.size(0), gq.size(1), q + k + v, gq.size(3)}, gq.options());
  return {all.narrow(2, 0, q), all.narrow(2, q, k), all.narrow(2, q + k, v)};
}

QkGradients rotate_qk_backward_gpu(const QkPair& grad, const QkPair& in, const QkPair& rstd,
                                   const QkNorms& norms, const at::Tensor& cos, const at::Tensor& sin,
                                   bool needs_weights, const at::Tensor& grad_v) {
  const auto& [q_weight, k_weight, epsilon, plus_one] = norms;
  const at::Tensor gq = with_whole_heads(grad.q.transpose(1, 2)),
                   gk = with_whole_heads(grad.k.transpose(1, 2)),
                   gv = grad_v.defined() ? with_whole_heads(grad_v.transpose(1, 2)) : at::Tensor();
  const bool normed = q_weight.has_value();
  const at::Tensor q = normed ? with_whole_heads(in.q) : gq, k = normed ? with_whole_heads(in.k) : gk;
  const at::Tensor by_q = normed ? q_weight->contiguous() : at::Tensor();
  const at::Tensor by_k = normed ? k_weight->contiguous() : at::Tensor();
  QkCall call(gq, gk, cos, sin);
  if (gv.defined()) call.shape.v_heads = static_cast<int>(gv.size(2));
  const auto [q_out, k_out, v_out] = place_for_gradients(gq, gk, gv);
  call.find({gq, gk, q, k, q_out, k_out, gv.defined() ? gv : gq, gv.defined() ? v_out : q_out},
            {normed ? by_q : gq, normed ? by_k : gk});
  const void* inverse_q = normed ? elements(rstd.q, gq, at::kFloat) : nullptr;
  const void* inverse_k = normed ? elements(rstd.k, gq, at::kFloat) : nullptr;
  call.kernels->start("rotate_qk_backward", call.grid(call.positions * call.heads()), elements(gq, gq),
                      elements(gk, gq), elements(gv, gq), elements(q, gq), elements(k, gq),
                      elements(by_q, gq), elements(by_k, gq), inverse_q, inverse_k, elements(call.cos, gq),
                      elements(call.sin, gq), q_out.mutable_data_ptr(), k_out.mutable_data_ptr(),
                      gv.defined() ? v_out.mutable_data_ptr() : nullptr, call.shape, HeadStrides(gq),
                      HeadStrides(gk), HeadStrides(gv.defined() ? gv : gq), HeadStrides(q), HeadStrides(k),
                      HeadStrides(q_out), HeadStrides(k_out), call.positions, static_cast<int>(plus_one));
  at::Tensor gq_weight, gk_weight;
  if (normed && needs_weights) {
    const int64_t q_count = call.positions * q.size(2), k_count = call.positions * k.size(2);
    const int64_t each = std::max<int64_t>(16, (q_count + 2047) / 2048);
    const int64_t q_parts = (q_count + each - 1) / each, k_parts = (k_count + each - 1) / each;
    const at::Tensor sums = at::empty({q_parts + k_parts, q.size(3)}, rstd.q.options());
    call.kernels->start("rotate_qk_backward_weight", call.grid(q_parts + k_parts), elements(gq, gq),
                        elements(gk, gq), elements(q, gq), elements(k, gq), inverse_q, inverse_k,
                        elements(call.cos, gq), elements(call.sin, gq), sums.mutable_data_ptr(), call.shape,
                        HeadStrides(gq), HeadStrides(gk), HeadStrides(q), HeadStrides(k), call.positions,
                        q_parts, k_parts, each, static_cast<int>(plus_one));
    gq_weight = sums.narrow(0, 0, q_parts).sum(0).to(q_weight->scalar_type());
    gk_weight = sums.narrow(0, q_parts, k_parts).sum(0).to(q_weight->scalar_type());
  }
  return {{q_out, k_out}, {gq_weight, gk_weight}, v_out};
}

constexpr Op kRotateQk{"trainer::rotate_qk", rotate_qk_cpu, rotate_qk_gpu};
constexpr Op kRotateQkBackward{"trainer::rotate_qk_backward", rotate_qk_backward_cpu, rotate_qk_backward_gpu};

}  // namespace

RotatedQk rotate_qk(const QkPair& in, const QkNorms& norms, const at::Tensor& cos, const at::Tensor& sin) {
  return kRotateQk(in, norms, cos, sin);
}

QkGradients rotate_qk_backward(const QkPair& grad, const QkPair& in, const QkPair& rstd, const QkNorms& norms,
                               const at::Tensor& cos, const at::Tensor& sin, bool needs_weights,
                               const at::Tensor& grad_v) {
  return kRotateQkBackward(grad, in, rstd, norms, cos, sin, needs_weights, grad_v);
}

}  // namespace trainer
