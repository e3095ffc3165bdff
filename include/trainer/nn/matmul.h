// Products of activations with weights, in the type in which the machine multiplies fastest.
//
// Where the processor has no fast bf16 (Intel before AMX runs bf16 products at half the speed of fp32 ones,
// machines without AVX512_BF16 far slower), bf16 operands are widened to fp32 panel by panel, multiplied, and
// the result rounded once. A bf16 weight is never in memory as a whole in fp32.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/nn/weight.h"

namespace trainer {

// The type in which products with x are made: fp32 where bf16 ones go through it, else x's.
at::ScalarType product_type(const at::Tensor& x);
// x in that type; x itself where it has it.
at::Tensor for_products(const at::Tensor& x);

// x w^T: x [m, k] from for_products, w [n, k] in any type -> [m, n] in x's type
at::Tensor times_transposed(const at::Tensor& x, const at::Tensor& w);

// x w: x [m, k] from for_products, w [k, n] in any type -> [m, n] in x's type
at::Tensor times(const at::Tensor& x, const at::Tensor& w);
// sum += x w; an undefined sum becomes x w.
void times_into(at::Tensor& sum, const at::Tensor& x, const at::Tensor& w);

// The same with a weight as it is in `type`, the type of the computation. One that is kept otherwise is in it
// during the product only; one from a source is made panel by panel.
at::Tensor times_transposed(const at::Tensor& x, const Weight& w, at::ScalarType type);
at::Tensor times(const at::Tensor& x, const Weight& w, at::ScalarType type);
void times_into(at::Tensor& sum, const at::Tensor& x, const Weight& w, at::ScalarType type);

}  // namespace trainer
