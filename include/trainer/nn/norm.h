// Root mean square normalisation (Zhang and Sennrich 2019), as T5LayerNorm and LlamaRMSNorm compute it.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/nn/module.h"

namespace trainer {

class RmsNorm : public Module {
 public:
  RmsNorm(int64_t size, double epsilon);
  // x [..., size] -> the same: variance in fp32, the normalised value cast to x's type, then times the
  // weight.
  at::Tensor forward(const at::Tensor& x) const;

  Parameter weight;  // [size]

 private:
  double epsilon_;
};

}  // namespace trainer
