#include "training/step_of_vectors.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

namespace trainer {

void StepOfVectors::compare(const std::vector<std::vector<double>>& vectors) {
  const at::AutoGradMode with_gradients(true);
  const auto slots = static_cast<int64_t>(vectors.size()),
             size = static_cast<int64_t>(vectors.front().size());
  const int64_t rows = batch_.rows();
  at::Tensor all = at::empty({slots, size}, at::kDouble);
  for (int64_t slot = 0; slot < slots; slot++)
    std::ranges::copy(vectors[static_cast<size_t>(slot)], all.mutable_data_ptr<double>() + slot * size);
  all.set_requires_grad(true);
  const at::Tensor unit = all / all.norm(2, 1, /*keepdim=*/true).clamp_min(1e-12);
  const at::Tensor cosines = unit.narrow(0, 0, rows).matmul(unit.narrow(0, rows, slots - rows).t());
  const at::Tensor own = at::arange(rows, at::kLong);
  const at::Tensor loss = at::cross_entropy_loss(cosines * scale_, own);
  torch::autograd::backward({loss}, {});
  gradient_ = all.grad();
  const at::NoGradGuard no_grad;
  const at::Tensor right = cosines.argmax(1).eq(own).to(at::kDouble).mean();
  means_ = {{"loss", loss.item<double>()},
            {"accuracy", right.item<double>()},
            {"similarity", cosines.narrow(1, 0, rows).diagonal().mean().item<double>()}};
  compared_ = true;
}

at::Tensor StepOfVectors::gradient(const std::vector<int64_t>& slots) const {
  return gradient_.index_select(0, at::tensor(at::ArrayRef<int64_t>(slots), at::kLong)).to(at::kFloat);
}

}  // namespace trainer
