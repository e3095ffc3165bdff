#include "trainer/optim/gradients.h"

#include <algorithm>
#include <set>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "trainer/device/target_device.h"
#include "trainer/nn/attention.h"
#include "trainer/nn/embedding.h"

#include "optim/gradient_norm.h"

namespace trainer {

struct Gradients::Sums {
  std::vector<at::Tensor> values;
};

namespace {

// Decides by name, like transformers (trainer.py, get_decay_parameter_names): T5's relative_attention_bias
// counts as a bias.
bool is_norm_or_bias(const std::string& name) {
  return name.find("bias") != std::string::npos || name.find("norm") != std::string::npos;
}

// The norms of a gradient's pieces, [pieces]. LibTorch's norm on the CPU keeps one vector of fp32 sums and
// loses small addends: over 66 million elements the result is 0.5 % too small.
at::Tensor norms_of_pieces(const at::Tensor& gradient) {
  constexpr int64_t kElements = 32768;  // added up at once
  if (gradient.numel() <= kElements)
    return at::linalg_vector_norm(gradient, 2, std::nullopt, false, at::kFloat).view({1});
  const int64_t rows = gradient.size(0), row = gradient.numel() / rows;
  const int64_t step = std::max<int64_t>(1, kElements / row);
  at::Tensor norms = at::empty({(rows + step - 1) / step}, gradient.options().dtype(at::kFloat));
  if (gradient.is_meta()) return norms;  // the loop allocates nothing, and may be very long
  for (int64_t i = 0; i < norms.size(0); i++) {
    at::Tensor norm = norms.select(0, i);
    const at::Tensor piece = gradient.narrow(0, i * step, std::min(step, rows - i * step));
    at::linalg_vector_norm_out(norm, piece, 2, std::nullopt, false, at::kFloat);
  }
  return norms;
}

}  // namespace

// Called by autograd when a leaf's gradient of this micro-batch is complete.
struct MoveToSum : torch::autograd::PostAccumulateGradHook {
  explicit MoveToSum(std::function<void(const at::Tensor&)> move) : move_(std::move(move)) {}
  void operator()(const torch::autograd::Variable& leaf) override { move_(leaf); }
  std::function<void(const at::Tensor&)> move_;
};

std::vector<TrainedParameter> trained_parameters(Module& model) {
  std::set<const Parameter*> embeddings;
  model.for_each_module([&](const std::string&, Module& module) {
    if (const auto* tokens = dynamic_cast<const Embedding*>(&module)) embeddings.insert(&tokens->weight);
    if (const auto* bias = dynamic_cast<const RelativeBias*>(&module)) embeddings.insert(&bias->weight);
  });
  std::vector<TrainedParameter> out;
  model.for_each_parameter([&](const std::string& name, Parameter& parameter) {
    if (!parameter.trained()) return;
    out.push_back({name, parameter.value.tensor(), !is_norm_or_bias(name), embeddings.contains(&parameter)});
  });
  return out;
}

Gradients::Gradients(const std::vector<TrainedParameter>& parameters, StateDtype dtype) {
  for (const TrainedParameter& parameter : parameters) leaves_.push_back(parameter.value);
  const bool wider = dtype == StateDtype::fp32 && std::ranges::any_of(leaves_, [](const at::Tensor& leaf) {
                       return leaf.scalar_type() != at::kFloat;
                     });
  if (!wider) return;
  sums_ = std::make_shared<Sums>();
  sums_->values.resize(leaves_.size());
  for (size_t i = 0; i < leaves_.size(); i++) {
    auto move = [sums = sums_, i](const at::Tensor& leaf) {
      at::NoGradGuard no_grad;
      at::Tensor& sum = sums->values[i];
      const at::Tensor gradient = leaf.grad();
      if (sum.defined()) {
        sum.add_(gradient);
      } else {
        sum = gradient.to(at::kFloat);
      }
      leaf.mutable_grad().reset();
    };
    torch::autograd::impl::set_post_acc_grad_hooks(leaves_[i], std::make_unique<MoveToSum>(move));
  }
}

Gradients::~Gradients() {
  if (sums_) {
    for (const at::Tensor& leaf : leaves_) torch::autograd::impl::set_post_acc_grad_hooks(leaf, nullptr);
  }
}

void Gradients::clear() {
  for (at::Tensor& leaf : leaves_) leaf.mutable_grad().reset();
  if (sums_) std::ranges::fill(sums_->values, at::Tensor());
}

at::Tensor Gradients::get(size_t i) const { return sums_ ? sums_->values[i] : leaves_[i].grad(); }

at::Tensor Gradients::norm() const {
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < leaves_.size(); i++) {
    if (const at::Tensor gradient = get(i); gradient.defined()) gradients.push_back(gradient);
  }
  if (gradients.empty()) return at::zeros({});
  if (target_of(gradients.front().device()) != c10::kCPU) return gradient_norm_gpu(gradients);
  std::vector<at::Tensor> norms;
  for (const at::Tensor& gradient : gradients) norms.push_back(norms_of_pieces(gradient));
  return at::linalg_vector_norm(at::cat(norms));
}

}  // namespace trainer
