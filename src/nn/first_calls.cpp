// MKL's vector functions, which at::exp and its like use, choose their code at the first call. Where two
// threads make that call at once, one of them may get a variant of lower accuracy for this call: without the
// calls below, 4 of 100 processes had gradients 4e-6 off in their first step (LibTorch 2.11, two threads), so
// a run was not repeatable to the bit. Small tensors are computed on one thread.
#include <ATen/ATen.h>

namespace trainer {
namespace {

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
