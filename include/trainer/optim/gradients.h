// The gradients of one optimizer step, summed over its micro-batches.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/config/config.h"
#include "trainer/weights/module.h"

namespace trainer {

class CopyStream;

struct TrainedParameter {
  std::string name;
  at::Tensor value;  // the leaf
  bool decay;  // weight decay applies: not to norms and biases (transformers, get_decay_parameter_names)
  bool embedding = false;  // the table of a torch.nn.Embedding, also if an output head is tied to it
  std::shared_ptr<OffloadedWeight>
      offloaded{};  // for a leaf that is not on the device (trainer/weights/weight.h)
};

// Returns the parameters that require grad, in the order of the model's modules.
std::vector<TrainedParameter> trained_parameters(Module& model);

// Sums are kept in the parameter's type, or in fp32 if asked for. With fp32, the gradient of each micro-batch
// is added to the sum and freed as soon as it is complete. So is the gradient of an offloaded parameter: its
// sum is offloaded, and allocated here. The sum of a parameter of another rank is on the device.
class Gradients {
 public:
  // `stream`: for parameters that are not on the device; not null if there are any.
  Gradients(const std::vector<TrainedParameter>& parameters, StateDtype dtype,
            std::shared_ptr<CopyStream> stream = nullptr);
  const std::shared_ptr<CopyStream>& stream() const { return stream_; }
  ~Gradients();
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

  void clear();  // to be called before a step, and when a step is abandoned
  // Returns the sum of a parameter, found by its name, on the device or seen from it (memory/offload.h);
  // undefined when no backward has reached it.
  at::Tensor get(const TrainedParameter& parameter) const;
  // Makes the sum of a parameter that no backward has reached 0; does nothing to another.
  void make_zeros(const TrainedParameter& parameter);
  // Returns all sums in the order of the parameters, undefined where there is none, and replaces them. Not
  // for offloaded parameters.
  std::vector<at::Tensor> sums() const;
  void set(const std::vector<at::Tensor>& sums);
  // Forgets the sum of one parameter, and frees its memory.
  void drop(const TrainedParameter& parameter);

  // For sums over ranks that begin before the passes have ended. From now on autograd, maybe on several
  // threads, calls `listener` each time a micro-batch's gradient of a parameter that is on the device has
  // come. Its argument is the parameter's place in the list that the constructor got. Empty: nobody listens.
  void on_gradient(std::function<void(size_t place)> listener);
  // Returns a parameter's sum, and keeps it from now on: clear() leaves it, and gradients that come are
  // dropped. There must be a sum, of a parameter that is on the device.
  at::Tensor set_aside(size_t place);
  // Makes the sums that were set aside ordinary again.
  void put_back();
  // Returns the Euclidean norm over all parameters that have a sum, an fp32 scalar on the device.
  at::Tensor norm() const;

 private:
  struct Sums;
  struct Hook;
  void hook(size_t i);
  at::Tensor sum_of(size_t i) const;
  bool is_apart(size_t i) const;

  std::vector<at::Tensor> leaves_;
  std::map<std::string, size_t> places_;  // by name
  std::shared_ptr<CopyStream> stream_;
  std::shared_ptr<Sums> sums_;  // sums that are not in leaf.grad(); autograd's hooks share them
  bool keeps_ = false;          // clear() leaves what was set aside
};

}  // namespace trainer
