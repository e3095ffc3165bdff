// In place of this layer in a build with -DTRAINER_GEMM=OFF: no type is multiplied here, so that MKL and
// oneDNN multiply everything (ops/cpu_products.h).
#include <ATen/core/Tensor.h>

#include "gemm/attention.h"
#include "gemm/biased_attention.h"
#include "gemm/few_rows.h"
#include "gemm/products.h"

namespace trainer {
namespace {

[[noreturn]] void left_out(const char* what) {
  TORCH_INTERNAL_ASSERT(false, what, " was called, but this build has no products of its own");
}

}  // namespace

BuiltinTypes builtin_types() { return {}; }
bool can_multiply(const at::Tensor& /*x*/, const at::Tensor& /*y*/) { return false; }
void add_builtin_products(const std::vector<SummedProduct>& /*products*/) {
  left_out("add_builtin_products()");
}

bool can_multiply_few_rows(const at::Tensor& /*x*/, at::ScalarType /*weight*/) { return false; }
void few_rows_products(const std::vector<FewRowsProduct>& /*products*/) { left_out("few_rows_products()"); }

bool can_attend(const at::Tensor& /*q*/, const at::Tensor& /*k*/, const at::Tensor& /*v*/) { return false; }
void builtin_attention(const PackedHeads& /*in*/, const at::Tensor& /*out*/, const at::Tensor& /*log_sums*/) {
  left_out("builtin_attention()");
}
void builtin_attention_backward(const PackedHeads& /*in*/, const AttentionGradients& /*gradients*/) {
  left_out("builtin_attention_backward()");
}

void BiasedHeads::set_bias(const at::Tensor& /*weight*/, const at::Tensor& /*of_distances*/,
                           int64_t /*distance_0*/) {}
bool can_attend(const BiasedHeads& /*in*/) { return false; }
void builtin_biased_attention(const BiasedHeads& /*in*/, const at::Tensor& /*out*/) {
  left_out("builtin_biased_attention()");
}
BiasSums builtin_biased_attention_backward(const BiasedHeads& /*in*/, const BiasedGradients& /*gradients*/,
                                           bool /*needs_bias*/) {
  left_out("builtin_biased_attention_backward()");
}

}  // namespace trainer
