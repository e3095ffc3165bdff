#include "trainer/nn/embedding.h"

#include <ATen/ATen.h>

namespace trainer {

Embedding::Embedding(int64_t rows, int64_t size, int64_t padding_idx)
    : weight({rows, size}), padding_idx_(padding_idx) {
  add("weight", weight);
}

at::Tensor Embedding::forward(const at::Tensor& ids, at::ScalarType type) const {
  return at::embedding(weight.value, ids, padding_idx_).to(type);
}

}  // namespace trainer
