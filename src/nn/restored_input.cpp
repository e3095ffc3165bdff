#include "nn/restored_input.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "nn/linear_group.h"
#include "ops/plain_view.h"

namespace trainer {

RestoredInput::RestoredInput(const LayerInput& in, const std::vector<Projection>& projections)
    : make_(in.make), from_(in.from) {
  needed_ = std::ranges::any_of(projections, [](const Projection& p) {
    return p.weight.requires_grad() || (p.a.defined() && p.a.requires_grad());
  });
}

void RestoredInput::save(const at::Tensor& x, std::vector<at::Tensor>& saved) {
  first_ = saved.size();
  if (!needed_) return from_.clear();
  if (!make_) from_ = {x};
  count_ = from_.size();
  saved.insert(saved.end(), from_.begin(), from_.end());
  from_.clear();  // autograd drops what it saved as soon as backward has used it
}

at::Tensor RestoredInput::restore(const std::vector<at::Tensor>& saved) const {
  TORCH_CHECK(needed_, "a layer's input was not kept: no gradient needs it");
  const auto first = saved.begin() + static_cast<std::ptrdiff_t>(first_);
  if (!make_) return as_matrix(*first);
  const at::NoGradGuard no_grad;
  const at::Tensor x = make_({first, first + static_cast<std::ptrdiff_t>(count_)});
  return as_matrix(x);
}

}  // namespace trainer
