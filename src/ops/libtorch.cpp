// Additions to LibTorch's operators. First, meta kernels for the memory plan, for operators whose own ones
// are in Python. Each allocates what the target's kernel allocates and computes nothing.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <torch/library.h>

#include "device/target_device.h"

namespace trainer {
namespace {

at::Tensor index_select(const at::Tensor& x, int64_t dim, const at::Tensor& index) {
  std::vector<int64_t> shape = x.sizes().vec();
  if (!shape.empty()) shape[static_cast<size_t>(at::maybe_wrap_dim(dim, x.dim()))] = index.numel();
  return at::empty(shape, x.options());
}

at::Tensor where(const at::Tensor& condition, const at::Tensor& x, const at::Tensor& y) {
  const std::vector<int64_t> shape = at::infer_size(condition.sizes(), at::infer_size(x.sizes(), y.sizes()));
  return at::empty(shape, condition.options().dtype(at::result_type(x, y)));
}

at::Tensor product_as(const at::Tensor& x, const at::Tensor& y, at::ScalarType type) {
  return at::empty({x.size(0), y.size(1)}, x.options().dtype(type));
}

at::Tensor& where_out(const at::Tensor& condition, const at::Tensor& x, const at::Tensor& y,
                      at::Tensor& out) {
  out.resize_(at::infer_size(condition.sizes(), at::infer_size(x.sizes(), y.sizes())));
  return out;
}

at::Tensor like(const at::Tensor& x) { return at::empty_like(x); }

at::Tensor& of_both(const at::Tensor& x, const at::Tensor& y, at::Tensor& out) {
  out.resize_(at::infer_size(x.sizes(), y.sizes()));
  return out;
}

at::Tensor& of_one(const at::Tensor& x, at::Tensor& out) {
  out.resize_(x.sizes());
  return out;
}

at::Tensor embedding_dense_backward(const at::Tensor& gradient, const at::Tensor& ids, c10::SymInt rows,
                                    c10::SymInt, bool) {
  const int64_t size = gradient.size(-1), count = ids.numel();
  const at::Tensor out = at::empty({rows.expect_int(), size}, gradient.options());
  const at::Tensor contiguous = gradient.contiguous(), contiguous_ids = ids.contiguous();
  if (target_of(gradient.device()) == c10::kCPU) return out;
  // CUDA sorts the ids and sums the rows of equal ids in fp32: at most one row per id.
  const at::Tensor sorted = at::empty({3, count}, ids.options());
  const at::Tensor sums = at::empty({count, size}, gradient.options().dtype(at::kFloat));
  return out;
}

TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("index_select", index_select);
  library.impl("where.self", where);
  library.impl("mm.dtype", product_as);
  library.impl("where.self_out", where_out);
  library.impl("abs", like);
  library.impl("relu", like);
  library.impl("logical_or.out", of_both);
  library.impl("logical_not.out", of_one);
  library.impl("embedding_dense_backward", embedding_dense_backward);
}

// MKL's vector functions, which at::exp and similar operators use, choose their code at the first call. If
// two threads make that call at the same time, one of them may get a less accurate variant for this call.
// Without the calls below, 4 of 100 processes had gradients 4e-6 off in their first step (LibTorch 2.11, two
// threads), so a run did not repeat with the same bits. Small tensors are computed on one thread.
const bool called = [] {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor x = at::full({32}, 0.5, dtype);
    for (at::Tensor (*function)(const at::Tensor&) :
         {&at::exp, &at::log, &at::sin, &at::cos, &at::tanh, &at::erf, &at::sqrt})
      function(x);
  }
  return true;
}();

}  // namespace
}  // namespace trainer
