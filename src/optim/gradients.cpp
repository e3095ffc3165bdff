#include "trainer/optim/gradients.h"

#include <algorithm>
#include <set>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "device/target_device.h"
#include "memory/copy_stream.h"
#include "memory/memory_phase.h"
#include "memory/offload.h"
#include "nn/attention.h"
#include "nn/embedding.h"
#include "optim/gradient_norm.h"

namespace trainer {
namespace {

// In pieces where the types differ, because on the CPU LibTorch first converts all of what it adds.
void add_gradient(const at::Tensor& sum, const at::Tensor& gradient) {
  constexpr int64_t kPiece = 1 << 18;
  const bool at_once = sum.scalar_type() == gradient.scalar_type() || target_of(sum.device()) != c10::kCPU ||
                       !sum.is_contiguous() || !gradient.is_contiguous();
  if (at_once) {
    sum.add_(gradient);
    return;
  }
  const at::Tensor to = sum.view(-1), from = gradient.view(-1);
  for (int64_t first = 0; first < to.numel(); first += kPiece) {
    const int64_t count = std::min(kPiece, to.numel() - first);
    to.narrow(0, first, count).add_(from.narrow(0, first, count));
  }
}

}  // namespace

// Sums that are apart from the leaves, always or in this step.
struct Gradients::Sums {
  struct Sum {
    at::Tensor value;                        // undefined: the leaf has it
    bool begun = false;                      // it is a sum of this step
    bool apart = false;                      // gradients are moved here
    std::shared_ptr<OffloadedWeight> giver;  // for a leaf that is not on the device; else null
    bool below = false;                      // the value is offloaded, and allocated for good
    at::ScalarType type = at::kFloat;        // of the value
    at::Tensor aside = {};                   // the sum that was set aside, in place of leaf and value
    bool hooked = false;                     // autograd calls arrive()
  };

  // Called by autograd when a leaf's gradient of this micro-batch is complete.
  void arrive(size_t i, const at::Tensor& leaf) {
    if (!leaf.grad().defined()) return;  // a copy of the leaf got it
    const bool dropped = of[i].aside.defined();
    if (of[i].apart && !dropped) take(i, leaf.grad());
    if (of[i].apart || dropped) leaf.mutable_grad().reset();
    if (listener) listener(i);
  }

  // Adds the gradient of a micro-batch.
  void take(size_t i, const at::Tensor& gradient) {
    const at::NoGradGuard no_grad;
    Sum& sum = of[i];
    const bool first = !std::exchange(sum.begun, true);
    if (sum.below) {
      take_offloaded(sum.value, gradient, first);
    } else if (first) {
      sum.value = gradient.to(sum.type);
    } else {
      add_gradient(sum.value, gradient);
    }
  }

  std::vector<Sum> of;
  std::shared_ptr<CopyStream> stream;
  std::function<void(size_t)> listener;

 private:
  void take_offloaded(const at::Tensor& sum, const at::Tensor& gradient, bool first) const {
    count_moved(static_cast<int64_t>(sum.nbytes()) * (first ? 1 : 2));
    if (!stream->copies()) {
      first ? void(sum.copy_(gradient)) : add_gradient(sum, gradient);
      return release_offloaded(sum);
    }
    stream->after_work([&] {
      if (first) {
        sum.copy_(gradient.to(sum.scalar_type()), /*non_blocking=*/true);
        return;
      }
      const at::Tensor both = at::empty(sum.sizes(), stream->options(sum.scalar_type()));
      both.copy_(sum, /*non_blocking=*/true);
      sum.copy_(both.add_(gradient), /*non_blocking=*/true);
    });
    stream->hold(gradient);
  }
};

namespace {

// Decides by name, like transformers (trainer.py, get_decay_parameter_names): T5's relative_attention_bias
// counts as a bias.
bool is_norm_or_bias(const std::string& name) {
  return name.find("bias") != std::string::npos || name.find("norm") != std::string::npos;
}

}  // namespace

struct Gradients::Hook : torch::autograd::PostAccumulateGradHook {
  Hook(std::shared_ptr<Sums> all, size_t place) : sums(std::move(all)), i(place) {}
  void operator()(const torch::autograd::Variable& leaf) override { sums->arrive(i, leaf); }

  std::shared_ptr<Sums> sums;
  size_t i;
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
    const Weight& value = parameter.value;
    out.push_back(
        {name, value.tensor(), !is_norm_or_bias(name), embeddings.contains(&parameter), value.offloaded()});
  });
  return out;
}

Gradients::Gradients(const std::vector<TrainedParameter>& parameters, StateDtype dtype,
                     std::shared_ptr<CopyStream> stream)
    : stream_(std::move(stream)) {
  for (const TrainedParameter& parameter : parameters) {
    places_[parameter.name] = leaves_.size();
    leaves_.push_back(parameter.value);
  }
  const bool wider = dtype == StateDtype::fp32 && std::ranges::any_of(leaves_, [](const at::Tensor& leaf) {
                       return leaf.scalar_type() != at::kFloat;
                     });
  const bool offloaded = std::ranges::any_of(
      parameters, [](const TrainedParameter& parameter) { return parameter.offloaded != nullptr; });
  if (!wider && !offloaded) return;
  const InPhase phase(MemoryPhase::gradients);
  sums_ = std::make_shared<Sums>();
  sums_->of.resize(leaves_.size());
  sums_->stream = stream_;
  for (size_t i = 0; i < leaves_.size(); i++) {
    Sums::Sum& sum = sums_->of[i];
    sum.giver = parameters[i].offloaded;
    sum.below = sum.giver && !sum.giver->of_other_rank;
    sum.apart = wider || sum.giver != nullptr;
    sum.type = wider ? at::kFloat : leaves_[i].scalar_type();
    if (!sum.apart) continue;
    if (sum.below) sum.value = offloaded_zeros(leaves_[i].sizes(), sums_->stream->options(sum.type));
    if (sum.giver) {
      sum.giver->take_gradient = [sums = sums_, i](const at::Tensor& gradient) { sums->take(i, gradient); };
    }
    hook(i);
  }
}

Gradients::~Gradients() {
  if (!sums_) return;
  for (size_t i = 0; i < leaves_.size(); i++) {
    const Sums::Sum& sum = sums_->of[i];
    if (sum.hooked) torch::autograd::impl::set_post_acc_grad_hooks(leaves_[i], nullptr);
    if (sum.giver) sum.giver->take_gradient = nullptr;
  }
}

void Gradients::hook(size_t i) {
  sums_->of[i].hooked = true;
  torch::autograd::impl::set_post_acc_grad_hooks(leaves_[i], std::make_unique<Hook>(sums_, i));
}

void Gradients::on_gradient(std::function<void(size_t place)> listener) {
  if (!sums_) {
    sums_ = std::make_shared<Sums>();
    sums_->of.resize(leaves_.size());
  }
  sums_->listener = std::move(listener);
  for (size_t i = 0; i < leaves_.size(); i++) hook(i);
}

at::Tensor Gradients::set_aside(size_t place) {
  TORCH_CHECK(sums_, "nobody listens to gradients");
  Sums::Sum& sum = sums_->of[place];
  const at::Tensor whole = sum_of(place);
  TORCH_CHECK(whole.defined() && !sum.below, "there is no sum on the device to set aside");
  sum.aside = whole;
  leaves_[place].mutable_grad().reset();
  if (sum.apart) sum.value.reset();
  sum.begun = false;
  keeps_ = true;
  return sum.aside;
}

void Gradients::put_back() { keeps_ = false; }

void Gradients::clear() {
  for (at::Tensor& leaf : leaves_) leaf.mutable_grad().reset();
  if (!sums_) return;
  for (Sums::Sum& sum : sums_->of) {
    sum.begun = false;
    if (!sum.below) sum.value.reset();
    if (!keeps_) sum.aside.reset();
  }
}

bool Gradients::is_apart(size_t i) const { return sums_ && sums_->of[i].apart; }

at::Tensor Gradients::get(const TrainedParameter& parameter) const {
  return sum_of(places_.at(parameter.name));
}

void Gradients::make_zeros(const TrainedParameter& parameter) {
  const size_t i = places_.at(parameter.name);
  if (sum_of(i).defined()) return;
  if (!is_apart(i)) {
    leaves_[i].mutable_grad() = at::zeros_like(leaves_[i]);
    return;
  }
  Sums::Sum& sum = sums_->of[i];
  if (sum.below) {
    sum.value.zero_();
  } else {
    const at::TensorOptions options = sum.giver ? sums_->stream->options(sum.type) : leaves_[i].options();
    sum.value = at::zeros(leaves_[i].sizes(), options.dtype(sum.type));
  }
  sum.begun = true;
}

void Gradients::drop(const TrainedParameter& parameter) {
  const size_t i = places_.at(parameter.name);
  leaves_[i].mutable_grad().reset();
  if (sums_) sums_->of[i].aside.reset();
  if (!is_apart(i)) return;
  sums_->of[i].begun = false;
  if (!sums_->of[i].below) sums_->of[i].value.reset();
}

std::vector<at::Tensor> Gradients::sums() const {
  std::vector<at::Tensor> all;
  for (size_t i = 0; i < leaves_.size(); i++) all.push_back(sum_of(i));
  return all;
}

void Gradients::set(const std::vector<at::Tensor>& sums) {
  for (size_t i = 0; i < leaves_.size(); i++) {
    const bool apart = is_apart(i);
    leaves_[i].mutable_grad() = apart ? at::Tensor() : sums[i];
    if (!apart) continue;
    sums_->of[i].value = sums[i];
    sums_->of[i].begun = sums[i].defined();
  }
}

at::Tensor Gradients::sum_of(size_t i) const {
  if (!sums_) return leaves_[i].grad();
  const Sums::Sum& sum = sums_->of[i];
  if (sum.aside.defined()) return sum.aside;
  if (!sum.apart) return leaves_[i].grad();
  if (!sum.begun) return {};
  return sum.below ? seen_from(sum.value, sums_->stream->device()) : sum.value;
}

at::Tensor Gradients::norm() const {
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < leaves_.size(); i++) {
    if (const at::Tensor gradient = sum_of(i); gradient.defined()) gradients.push_back(gradient);
  }
  if (gradients.empty()) return at::zeros({});
  if (sums_ && sums_->stream) sums_->stream->work_waits_for(sums_->stream->mark_copies());
  if (target_of(gradients.front().device()) != c10::kCPU) return gradient_norm_gpu(gradients);
  std::vector<at::Tensor> norms;
  for (const at::Tensor& gradient : gradients) {
    norms.push_back(norms_of_pieces(gradient));
    release_offloaded(gradient);
  }
  return at::linalg_vector_norm(at::cat(norms));
}

}  // namespace trainer
