// The gradients of one optimizer step, summed over its micro-batches.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/config/config.h"
#include "trainer/nn/module.h"

namespace trainer {

struct TrainedParameter {
  std::string name;
  at::Tensor value;  // the leaf
  bool decay;  // weight decay applies: not to norms and biases (transformers, get_decay_parameter_names)
};

// In the order of the model's tree.
std::vector<TrainedParameter> trained_parameters(Module& model);

// Sums are kept in the parameter's type, or in fp32 where asked for: then each micro-batch's gradient moves
// over to the sum as soon as it is complete and is freed.
class Gradients {
 public:
  Gradients(const std::vector<TrainedParameter>& parameters, StateDtype dtype);
  ~Gradients();
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

  void clear();  // to be called before a step, and when one is given up half-way
  // The sum of parameter i; undefined when no backward has reached it.
  at::Tensor get(size_t i) const;
  // Euclidean norm over all, fp32 scalar on the device.
  at::Tensor norm() const;

 private:
  struct Sums;
  std::vector<at::Tensor> leaves_;
  std::shared_ptr<Sums> sums_;  // when they are wider than the parameters
};

}  // namespace trainer
