#include "ops/nf4.h"

#include <optional>

#include <ATen/ATen.h>

#include "device/op.h"
#include "formats/bitsandbytes.h"
#include "ops/kernels.h"

namespace trainer {
namespace {

// As the kernel takes it.
struct Nf4Maps {
  std::array<float, 16> values = kNf4Values;
  DynamicMap scales = dynamic_map(true);
};

// The operator takes the parts of an Nf4Tensor, whose shape it does not need.
using MaybeTensor = std::optional<at::Tensor>;

at::Tensor dequantise_cpu(const at::Tensor& codes, const at::Tensor& scales, const MaybeTensor& nested_scales,
                          double offset, int64_t first, int64_t count, at::ScalarType type) {
  if (codes.is_meta()) return at::empty({count}, codes.options().dtype(type));
  Nf4Tensor tensor{{2 * codes.numel()}, codes, scales, {}, static_cast<float>(offset)};
  if (nested_scales) tensor.nested_scales = *nested_scales;
  return dequantise_nf4(tensor, first, count, type);
}

at::Tensor dequantise_gpu(const at::Tensor& codes, const at::Tensor& scales, const MaybeTensor& nested_scales,
                          double offset, int64_t first, int64_t count, at::ScalarType type) {
  static const Nf4Maps maps;
  // The kernel makes fp32 and bf16. Any other type is rounded from fp32, once as well.
  if (type != at::kBFloat16 && type != at::kFloat)
    return dequantise_gpu(codes, scales, nested_scales, offset, first, count, at::kFloat).to(type);
  const at::Tensor out = at::empty({count}, codes.options().dtype(type));
  const int64_t wide = 16 / static_cast<int64_t>(out.element_size());
  const bool aligned = reinterpret_cast<uintptr_t>(codes.const_data_ptr()) % 16 == 0;
  const int64_t width = aligned && first % kNf4Block == 0 && count % wide == 0 ? wide : 1;
  const void* nested = nested_scales ? elements(*nested_scales, out, at::kFloat) : nullptr;
  kernels_for(out, "nf4", width)
      .start("dequantise", grid_of(count / width), elements(codes, out, at::kByte), scales.const_data_ptr(),
             nested, static_cast<float>(offset), maps, first, out.mutable_data_ptr(), count / width);
  return out;
}

constexpr Op kDequantise{"trainer::dequantise_nf4", dequantise_cpu, dequantise_gpu};

}  // namespace

at::Tensor dequantise(const Nf4Tensor& tensor, int64_t first, int64_t count, at::ScalarType type) {
  MaybeTensor nested_scales;
  if (tensor.double_quantised()) nested_scales = tensor.nested_scales;
  return kDequantise(tensor.codes, tensor.scales, nested_scales, static_cast<double>(tensor.offset), first,
                     count, type);
}

}  // namespace trainer
