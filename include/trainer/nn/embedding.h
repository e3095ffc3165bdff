// A table of token embeddings.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/nn/module.h"

namespace trainer {

class Embedding : public Module {
 public:
  // The row `padding_idx` gets no gradient from where it is looked up (torch.nn.Embedding); -1: none is so.
  Embedding(int64_t rows, int64_t size, int64_t padding_idx = -1);
  // ids [...] int64 -> [..., size] in `type`
  at::Tensor forward(const at::Tensor& ids, at::ScalarType type) const;

  Parameter weight;  // [rows, size]

 private:
  int64_t padding_idx_;
};

}  // namespace trainer
