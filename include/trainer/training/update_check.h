// Proof that training trains what it should: after the first update trained tensors have moved, frozen ones
// have not.
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

  // Throws NumericsError when nothing trained has moved (`learning_rate` above 0 was applied) or something
  // frozen has; else a line for the log. A tensor whose gradient was zero (LoRA's A while B is zero) need not
  // move.
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
