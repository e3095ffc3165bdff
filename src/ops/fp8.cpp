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

constexpr float kSmallestRow = 1e-35f;  // its scale is a normal number

Fp8Rows fp8_rows_cpu(const at::Tensor& x, const at::Tensor& by) {
  at::Tensor wide = x.to(at::kFloat);
  if (by.defined()) wide = wide * by;
  const at::Tensor scales = wide.abs().amax(1, /*keepdim=*/true).clamp_min_(kSmallestRow).div_(kLargestFp8);
  const at::Tensor values = wide.div(scales).clamp_(-kLargestFp8, kLargestFp8);
  return {values.to(at::kFloat8_e4m3fn).view(at::kByte), scales.flatten()};
}

Fp8Rows fp8_rows_gpu(const at::Tensor& given, const at::Tensor& by) {
  const at::Tensor x = given.stride(1) == 1 ? given : given.contiguous();
  const int64_t rows = x.size(0), cols = x.size(1), width = width_for(cols, {x}, {x.stride(0)});
  check_fits(rows, "fp8_rows");
  const at::Tensor codes = at::empty({rows, cols}, x.options().dtype(at::kByte)),
                   scales = at::empty({rows}, x.options().dtype(at::kFloat));
  kernels_for(x, "fp8", width)
      .start("quantise_fp8_rows", grid_of_rows(rows, cols, width), elements(x, x), x.stride(0),
             elements(by, x, at::kFloat), codes.mutable_data_ptr(), scales.mutable_data_ptr(),
             static_cast<int>(cols));
  return {codes, scales};
}

int64_t rows_of(at::TensorList codes, int64_t columns) {
  int64_t rows = 0;
  for (const at::Tensor& one : codes) rows += one.numel() / columns;
  return rows;
}

at::Tensor transposed_codes_cpu(at::TensorList codes, int64_t columns) {
  at::Tensor out = at::empty({columns, rows_of(codes, columns)}, codes.front().options());
  int64_t first = 0;
  for (const at::Tensor& one : codes) {
    const at::Tensor matrix = one.view({-1, columns});
    out.narrow(1, first, matrix.size(0)).copy_(matrix.t());
    first += matrix.size(0);
  }
  return out;
}

at::Tensor transposed_codes_gpu(at::TensorList codes, int64_t columns) {
  constexpr int64_t tile = 64, threads = 256;
  at::Tensor out = at::empty({columns, rows_of(codes, columns)}, codes.front().options());
  // The file's other kernels ask for a type.
  const Kernels& kernels =
      find_kernels(out.device(), kernel_file("fp8"), KernelForm{.bf16 = true, .width = 8});
  auto* to = static_cast<uint8_t*>(out.mutable_data_ptr());
  for (const at::Tensor& one : codes) {
    const int64_t rows = one.numel() / columns;
    const KernelGrid grid{(columns + tile - 1) / tile, (rows + tile - 1) / tile, threads};
    kernels.start("transpose_codes", grid, elements(one, out), static_cast<void*>(to), out.stride(0),
                  static_cast<int>(rows), static_cast<int>(columns));
    to += rows;
  }
  return out;
}

constexpr Op kRows{"trainer::fp8_rows", fp8_rows_cpu, fp8_rows_gpu};
constexpr Op kTransposed{"trainer::transposed_codes", transposed_codes_cpu, transposed_codes_gpu};

}  // namespace

at::Tensor widen_fp8(const Fp8Tensor& tensor, int64_t first, int64_t count, at::ScalarType type) {
  return kWiden(tensor, first, count, type);
}

Fp8Rows fp8_rows(const at::Tensor& x, const at::Tensor& by) { return kRows(x, by); }

at::Tensor transposed_codes(at::TensorList codes, int64_t columns) { return kTransposed(codes, columns); }

}  // namespace trainer
