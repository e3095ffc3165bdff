// Products of a few rows with weights in NF4 or FP8, for the steps of a generation on a GPU: reading a weight
// takes longer than multiplying it there, so its codes are read as they are stored. Widening it first moves
// nine times as many bytes for NF4 in bf16, and five times as many for FP8.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/fp8.h"
#include "ops/nf4.h"

namespace trainer {

// A weight [outputs, inputs], in one of the two formats, and a bias [outputs] in the type of x, or an
// undefined one. It refers to the tensors of another object.
struct CodedWeight {
  const Nf4Tensor* nf4 = nullptr;
  const Fp8Tensor* fp8 = nullptr;
  at::Tensor bias = {};

  const std::vector<int64_t>& shape() const { return nf4 != nullptr ? nf4->shape : fp8->shape; }
  const at::Tensor& codes() const { return nf4 != nullptr ? nf4->codes : fp8->codes; }
  std::vector<at::Tensor> tensors() const;  // without the bias
};

// Returns whether coded_products() is quicker for x than widening weights: on a GPU, for up to 32 rows in
// fp32 or bf16, without gradients.
bool can_multiply_codes(const at::Tensor& x);

// Returns x w^T + bias, [rows, outputs] in the type of x, for x [rows, inputs] and each weight. What is
// multiplied are the numbers that widening to the type of x gives, with sums in fp32, which are rounded once
// and once more with the bias. On a GPU a row's sums have one order, whatever other rows and weights there
// are. Weights of one format take one launch, up to four of them; very long inputs of few outputs one more
// each.
std::vector<at::Tensor> coded_products(const at::Tensor& x, const std::vector<CodedWeight>& weights);

}  // namespace trainer
