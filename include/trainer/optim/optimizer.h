// Turns the gradients of a step into an update of the weights. The trainer, the memory plan, checkpoints and
// moves to another device use only this interface (docs/dev/adding-an-optimizer.md).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/config/config.h"
#include "trainer/optim/gradients.h"

namespace trainer {

// Parameter -> name of its state ("exp_avg") -> tensor, of any shape and of a type that checkpoints can
// store.
using OptimizerTensors = std::map<std::string, std::map<std::string, at::Tensor>>;

// The state of an optimizer in a checkpoint. The tensors are the optimizer's own, not copies.
struct OptimizerSnapshot {
  std::string name;
  int64_t steps_taken = 0;
  OptimizerTensors tensors;
};

// All state is allocated by the constructor, so that no step needs more memory than the first one.
class Optimizer {
 public:
  Optimizer() = default;
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  virtual std::string name() const = 0;  // optimizer.name in the configuration, and in checkpoints

  // Applies the gradients, clipped to max_grad_norm (0: not). `norm` is Gradients::norm(). After an
  // out-of-memory exception, a call with the same arguments continues where this one stopped, and the result
  // is the same. On tensors of `meta` it allocates what it allocates elsewhere, and reads no values.
  virtual void step(const Gradients& gradients, const at::Tensor& norm, double max_grad_norm,
                    double learning_rate) = 0;
  // Returns whether step() was interrupted after it had written a part of the weights.
  virtual bool half_written() const = 0;

  // Allocates what step() allocates, and changes nothing.
  virtual void rehearse(const Gradients& gradients, const at::Tensor& norm, double max_grad_norm) = 0;

  // Moves the state. The parameters are moved by their owner, in place.
  virtual void move_to(at::Device device) = 0;

  // Returns all state, by parameter. Names of state have no dots.
  virtual OptimizerTensors tensors() const = 0;
  int64_t state_bytes() const;
  int64_t steps_taken() const { return steps_; }

  OptimizerSnapshot snapshot() const { return {name(), steps_, tensors()}; }
  // Copies the saved state into tensors(), and releases each saved tensor as soon as it was copied. If it is
  // the state of another optimizer or does not fit, changes nothing and throws FormatError: the message
  // begins with `where` and names each tensor that is missing, unexpected, misshapen or of another type.
  void restore(OptimizerSnapshot saved, const std::string& where);

 protected:
  int64_t steps_ = 0;  // updates that step() has finished
};

// Returns the fp32 scalar that clips gradients of this norm to max_grad_norm (0: no clipping). It is computed
// on the device and not read by the host.
at::Tensor clip_scale(const at::Tensor& norm, double max_grad_norm);

using OptimizerFactory = std::function<std::unique_ptr<Optimizer>(
    std::vector<TrainedParameter> parameters, const OptimizerConfig& config, uint64_t seed)>;

// Returns the optimizer that config.name names. Throws ConfigError if none has that name.
std::unique_ptr<Optimizer> make_optimizer(std::vector<TrainedParameter> parameters,
                                          const OptimizerConfig& config, uint64_t seed);

}  // namespace trainer
