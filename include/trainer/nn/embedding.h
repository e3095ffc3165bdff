// A table of token embeddings.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/nn/module.h"

namespace trainer {

class Embedding : public Module {
 public:
  Embedding(int64_t rows, int64_t size);
  // ids [...] int64 -> [..., size] in `type`
  at::Tensor forward(const at::Tensor& ids, at::ScalarType type) const;

  Parameter weight;  // [rows, size]
};

}  // namespace trainer
