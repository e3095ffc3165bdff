// A model without its adapter, for a while.
#pragma once

#include <functional>
#include <vector>

#include "trainer/models/model.h"

namespace trainer {

// Takes LoRA's matrices out of all layers, and puts them back at its end: in between the model computes what
// its base does. Modules that are trained in full stay as they are.
class AdapterOff {
 public:
  explicit AdapterOff(Model& model);
  ~AdapterOff();
  AdapterOff(const AdapterOff&) = delete;
  AdapterOff& operator=(const AdapterOff&) = delete;

 private:
  std::vector<std::function<void()>> put_back_;
};

// Returns whether some layer has an adapter.
bool has_adapter(Model& model);

}  // namespace trainer
