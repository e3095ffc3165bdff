// A second optimizer, for tests: it shows that the rest of the program only uses the interface. Its state
// differs from AdamW's: fp32 with weights of any type, and an int64 number.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/optim/optimizer.h"

#include "optim/state_memory.h"

namespace trainer::test {

// v = 0.9 v + 0.1 g;  w -= learning rate * v / (1 - 0.9^updates), so that the first update is plain SGD.
class MomentumSgd final : public Optimizer {
 public:
  MomentumSgd(std::vector<TrainedParameter> parameters, const OptimizerConfig& /*config*/, uint64_t /*seed*/)
      : parameters_(std::move(parameters)) {
    for (const TrainedParameter& parameter : parameters_) {
      const auto options = parameter.value.options().requires_grad(false);
      states_.push_back({new_state(parameter.value.sizes(), options.dtype(at::kFloat)),
                         new_state({}, options.dtype(at::kLong))});
    }
  }

  std::string name() const override { return "momentum_sgd"; }

  void step(const Gradients& gradients, const at::Tensor& norm, double max_grad_norm,
            double learning_rate) override {
    const at::NoGradGuard no_grad;
    const at::Tensor scale = clip_scale(norm, max_grad_norm);
    for (; next_ < parameters_.size(); next_++) {
      const at::Tensor gradient = gradients.get(parameters_[next_]);
      if (gradient.defined()) update(next_, gradient, scale, learning_rate, /*rehearsal=*/false);
    }
    steps_++;
    next_ = 0;
  }

  bool half_written() const override { return next_ > 0; }

  void rehearse(const Gradients& gradients, const at::Tensor& norm, double max_grad_norm) override {
    const at::NoGradGuard no_grad;
    const at::Tensor scale = clip_scale(norm, max_grad_norm);
    for (size_t i = 0; i < parameters_.size(); i++) {
      const at::Tensor gradient = gradients.get(parameters_[i]);
      if (gradient.defined()) update(i, gradient, scale, 0.0, /*rehearsal=*/true);
    }
  }

  void move_to(at::Device device) override {
    for (State& state : states_) move_state({&state.velocity, &state.updates}, device);
  }

  OptimizerTensors tensors() const override {
    OptimizerTensors kept;
    for (size_t i = 0; i < parameters_.size(); i++)
      kept[parameters_[i].name] = {{"velocity", states_[i].velocity}, {"updates", states_[i].updates}};
    return kept;
  }

 private:
  struct State {
    at::Tensor velocity, updates;
  };

  void update(size_t i, const at::Tensor& gradient, const at::Tensor& scale, double learning_rate,
              bool rehearsal) {
    const at::Tensor weight = parameters_[i].value.detach();
    const State& state = states_[i];
    const at::Tensor updates = state.updates + 1;
    const at::Tensor velocity = state.velocity * 0.9 + gradient.to(at::kFloat) * scale * 0.1;
    const at::Tensor correction = 1 - at::pow(0.9, updates.to(at::kFloat));
    const at::Tensor next =
        (weight.to(at::kFloat) - velocity / correction * learning_rate).to(weight.scalar_type());
    if (rehearsal) return;
    // From here on nothing is allocated: a parameter is written as a whole or not at all.
    state.updates.copy_(updates);
    state.velocity.copy_(velocity);
    weight.copy_(next);
  }

  std::vector<TrainedParameter> parameters_;
  std::vector<State> states_;
  size_t next_ = 0;
};

inline std::unique_ptr<Optimizer> make_momentum_sgd(std::vector<TrainedParameter> parameters,
                                                    const OptimizerConfig& config, uint64_t seed) {
  return std::make_unique<MomentumSgd>(std::move(parameters), config, seed);
}

}  // namespace trainer::test
