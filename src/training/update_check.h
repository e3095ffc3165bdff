// Checks that training changes the right tensors: after the first update the trained ones have changed, and
// the frozen ones have not.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/models/model.h"

namespace trainer {

class UpdateCheck {
 public:
  // Remembers up to 4,096 elements of every tensor, spread over it.
  explicit UpdateCheck(Model& model);

  // Returns a line for the log. Throws NumericsError when no trained tensor has changed (a `learning_rate`
  // above 0 was applied), or a frozen one has. A tensor whose gradient was zero (LoRA's A while B is zero)
  // may stay the same.
  std::string after_update(double learning_rate) const;

 private:
  struct Seen {
    std::string name;
    at::Tensor value, sample;
  };
  static at::Tensor sample_of(const at::Tensor& tensor);
  std::vector<Seen> trained_, frozen_;
};

}  // namespace trainer
