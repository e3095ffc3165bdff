#include "trainer/nn/embedding.h"

#include <ATen/ATen.h>

namespace trainer {

Embedding::Embedding(int64_t rows, int64_t size) : weight({rows, size}) { add("weight", weight); }

at::Tensor Embedding::forward(const at::Tensor& ids, at::ScalarType type) const {
  return at::embedding(weight.value, ids).to(type);
}

}  // namespace trainer
