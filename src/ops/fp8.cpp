#include "ops/fp8.h"

#include <ATen/ATen.h>

#include "device/op.h"
#include "ops/kernels.h"

namespace trainer {
namespace {

// As the kernel takes it.
struct Fp8Scales {
  const float* scales;
  int64_t columns, block_rows, block_columns, scales_a_row;
};

at::Tensor widen_fp8_gpu(const Fp8Tensor& from, int64_t first, int64_t count, at::ScalarType type) {
  // The kernel makes fp32 and bf16. Any other type is rounded from fp32, once as well.
  if (type != at::kBFloat16 && type != at::kFloat)
    return widen_fp8_gpu(from, first, count, at::kFloat).to(type);
  const at::Tensor out = at::empty({count, from.columns()}, from.codes.options().dtype(type));
  const int64_t wide = 16 / static_cast<int64_t>(out.element_size());
  const bool aligned = reinterpret_cast<uintptr_t>(from.codes.const_data_ptr()) % 16 == 0;
  const bool whole = from.columns() % wide == 0 && from.block_columns() % wide == 0;
  const int64_t width = aligned && whole ? wide : 1, pieces = out.numel() / width;
  const Fp8Scales scales{static_cast<const float*>(elements(from.scales, out, at::kFloat)), from.columns(),
                         from.block_rows(), from.block_columns(), fp8_blocks(from.shape, from.block)[1]};
  kernels_for(out, "fp8", width)
      .start("widen_fp8", grid_of(pieces), elements(from.codes, out, at::kByte), scales, first,
             out.mutable_data_ptr(), pieces);
  return out;
}

constexpr Op kWiden{"trainer::widen_fp8", widen_fp8_cpu, widen_fp8_gpu};

}  // namespace

at::Tensor widen_fp8(const Fp8Tensor& tensor, int64_t first, int64_t count, at::ScalarType type) {
  return kWiden(tensor, first, count, type);
}

}  // namespace trainer
