// Products with weights in FP8 by their codes, without widening them. GPUs from compute capability 8.9 on
// (Ada, Hopper, Blackwell) multiply e4m3 twice as fast as bf16, by their data sheets. It rounds more than a
// widened product does: the other factor, activations or gradients, is in e4m3 as well, with a scale a row.
// No card has run it yet: before its first use it is compared with the same codes multiplied in fp64.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/weights/weight.h"

#include "ops/fp8.h"

namespace trainer {

// Returns the weight if products of x with it are computed so, else null: x is in bf16 on such a GPU, the
// weight is in FP8 with a scale a row or one in all, and its sizes are multiples of 16. In a memory plan the
// GPU is the first of this machine. With TRAINER_FP8_PRODUCTS=off none is; with `on` also those of a CPU are,
// which has no units for them, to see what they do to a model.
const Fp8Tensor* multiplied_in_fp8(const at::Tensor& x, const Weight& w);

// Returns whether products of bf16 on this device can be computed so.
bool multiplies_fp8(c10::Device device);

// x w^T in bf16, for x [n, columns of w]: one call of LibTorch's _scaled_mm. On the CPU the same codes are
// multiplied in fp32, in which their products are exact.
at::Tensor fp8_times_transposed(const Fp8Rows& x, const Fp8Tensor& w);

// x [w; w'; ...] in bf16, for x [n, all rows of the weights]. The weights' scales lie along the sum, so x
// takes them up before it is quantised, and the codes are transposed for this product.
at::Tensor fp8_times(const at::Tensor& x, const std::vector<const Fp8Tensor*>& weights);

// While one lives, products of CPU tensors, and in memory plans, are computed so.
class Fp8ProductsInTests {
 public:
  Fp8ProductsInTests();
  ~Fp8ProductsInTests();
  Fp8ProductsInTests(const Fp8ProductsInTests&) = delete;
  Fp8ProductsInTests& operator=(const Fp8ProductsInTests&) = delete;
};

}  // namespace trainer
