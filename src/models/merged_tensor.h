// A tensor of a base model with an adapter's part added, as a stream of bytes in pieces of rows.
#pragma once

#include <ostream>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/formats/safetensors.h"

namespace trainer {

struct MergedTensor {
  TensorView base;  // what the rest is added to; in a mapped file
  Dtype dtype;      // in which it is written
  // W + scale * B A. A Linear's: a [r, in], b [out, r]. An embedding's: a [r, rows], b [size, r], transposed
  // when added. Undefined: nothing is added.
  at::Tensor a, b;
  double scale = 0;
  bool embedding = false;
  at::Tensor magnitude;  // DoRA: of rows, or of an embedding's columns; may be undefined
  at::Tensor added;      // for a bias: lora_B's times scale; may be undefined

  // Computed in fp32 and rounded once. Memory: one piece; the file's pages are given back.
  void write(std::ostream& out) const;

 private:
  at::Tensor piece(int64_t row, int64_t rows) const;
  at::Tensor column_factors() const;
};

}  // namespace trainer
