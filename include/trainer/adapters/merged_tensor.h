// A tensor of a base model with an adapter's part added, in pieces of rows.
#pragma once

#include <functional>
#include <ostream>
#include <string>
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

  // Calls `use` with all rows from the first on, computed in fp32 [rows, columns], in pieces of a multiple of
  // `multiple` rows. Memory: one piece; the file's pages are given back.
  void in_rows(int64_t multiple, const std::function<void(const at::Tensor& rows)>& use) const;
  // The bytes in `dtype`, rounded once. Throws FormatError that names the tensor for values that it cannot
  // hold.
  void write(std::ostream& out, const std::string& name) const;

 private:
  at::Tensor piece(int64_t row, int64_t rows) const;
  at::Tensor column_factors() const;
};

// Throws FormatError that names the tensor unless fp16 can hold all of these fp32 values.
void require_fp16_range(const at::Tensor& values, const std::string& name);

}  // namespace trainer
