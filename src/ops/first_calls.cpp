// MKL's vector functions, which at::exp and similar operators use, choose their code at the first call. If
// two threads make that call at the same time, one of them may get a less accurate variant for this call.
// Without the calls below, 4 of 100 processes had gradients 4e-6 off in their first step (LibTorch 2.11, two
// threads), so a run did not repeat with the same bits. Small tensors are computed on one thread.
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
