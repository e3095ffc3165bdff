// A tensor of a base model with an adapter's part added, computed a few rows at a time.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/formats/safetensors.h"

#include "weights/weight_format.h"

namespace trainer {

struct MergedTensor {
  TensorView base;  // W, which the rest is added to; lies in a mapped file
  Dtype dtype;      // the type in which the result is written
  // If W is quantised, returns it, on the CPU. Then `base` has the shape and the type of its values, and the
  // bytes that it is made from.
  std::function<std::shared_ptr<const WeightSource>()> quantised;
  // W + scale * B A. For a Linear: a [r, in], b [out, r]. For an embedding: a [r, rows], b [size, r]; the
  // product is transposed before it is added. Undefined: nothing is added.
  at::Tensor a, b;
  double scale = 0;
  bool embedding = false;
  at::Tensor magnitude;  // DoRA: one value a row, or a column of an embedding; may be undefined
  at::Tensor added;      // for a bias: the bias of lora_B times scale; may be undefined

  // Returns whether the result has other values than W.
  bool is_changed() const { return a.defined() || added.defined(); }
  // Computes all rows in fp32, first to last, and calls `use` with one piece [rows, columns] after another.
  // The number of rows in a piece is a multiple of `multiple`. Memory: one piece; the file's pages are given
  // back.
  void in_rows(int64_t multiple, const std::function<void(const at::Tensor& rows)>& use) const;
  // Writes the bytes in `dtype`, rounded once. Throws FormatError that names the tensor if a value is out of
  // the type's range.
  void write(std::ostream& out, const std::string& name) const;
  // Returns the result in this format, quantised from its values in `dtype`; if W is in it and nothing is
  // added, W itself. Memory: the codes and one piece. Throws FormatError that names the tensor.
  std::shared_ptr<const WeightSource> in_format(const WeightFormat& format, const std::string& name,
                                                bool double_quant) const;

 private:
  at::Tensor piece(const WeightSource* source, int64_t row, int64_t rows) const;
  at::Tensor column_factors() const;
};

// Throws FormatError that names the tensor unless fp16 can hold all of these fp32 values.
void require_fp16_range(const at::Tensor& values, const std::string& name);

}  // namespace trainer
