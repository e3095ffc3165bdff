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
  bool embedding = false;  // the table of a torch.nn.Embedding, also if an output head is tied to it
};

// Returns the parameters that require grad, in the order of the model's modules.
std::vector<TrainedParameter> trained_parameters(Module& model);

// Sums are kept in the parameter's type, or in fp32 if asked for. With fp32, the gradient of each micro-batch
// is added to the sum and freed as soon as it is complete.
class Gradients {
 public:
  Gradients(const std::vector<TrainedParameter>& parameters, StateDtype dtype);
  ~Gradients();
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

  void clear();  // to be called before a step, and when a step is abandoned
  // Returns the sum of parameter i; undefined when no backward has reached it.
  at::Tensor get(size_t i) const;
  // Returns the Euclidean norm over all parameters, an fp32 scalar on the device.
  at::Tensor norm() const;

 private:
  struct Sums;
  std::vector<at::Tensor> leaves_;
  std::shared_ptr<Sums> sums_;  // if they are wider than the parameters
};

}  // namespace trainer
