// The norm of a gradient on the CPU.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainer {

// Returns the 2-norms of the gradient's pieces, fp32 [pieces], for fp32 and bf16. Squares are added up in
// fp64: LibTorch's norm on the CPU keeps one vector of fp32 sums and loses small addends, so that over 66
// million elements it is 0.5 % too small. A piece's sum has one order, on any number of threads.
at::Tensor norms_of_pieces(const at::Tensor& gradient);

}  // namespace trainer
