#include "ops/dequantise.h"

#include <optional>

#include <ATen/ATen.h>
#include <torch/library.h>

#include "device/operators.h"

namespace trainer {
namespace {

using MaybeTensor = std::optional<at::Tensor>;

at::Tensor dequantise_on_host(const at::Tensor& codes, const at::Tensor& scales,
                              const MaybeTensor& nested_scales, double offset, int64_t first, int64_t count,
                              at::ScalarType type) {
  if (codes.is_meta()) return at::empty({count}, codes.options().dtype(type));
  Nf4Tensor tensor{{2 * codes.numel()}, codes, scales, {}, static_cast<float>(offset)};
  if (nested_scales) tensor.nested_scales = *nested_scales;
  return dequantise_nf4(tensor, first, count, type);
}

at::Tensor on_gpu(const at::Tensor& codes, const at::Tensor& scales, const MaybeTensor& nested_scales,
                  double offset, int64_t first, int64_t count, at::ScalarType type) {
  return dequantise_nf4_gpu(codes, scales, nested_scales.value_or(at::Tensor()), offset, first, count, type);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(trainer, library) {
  library.def(
      "dequantise_nf4(Tensor codes, Tensor scales, Tensor? nested_scales, float offset, int first, int "
      "count, "
      "ScalarType type) -> Tensor");
}
TORCH_LIBRARY_IMPL(trainer, CPU, library) { library.impl("dequantise_nf4", dequantise_on_host); }
TORCH_LIBRARY_IMPL(trainer, Meta, library) {
  library.impl("dequantise_nf4", ByTarget<dequantise_on_host, on_gpu>::call);
}
TORCH_LIBRARY_IMPL(trainer, CUDA, library) { library.impl("dequantise_nf4", on_gpu); }

at::Tensor dequantise(const Nf4Tensor& tensor, int64_t first, int64_t count, at::ScalarType type) {
  static const Operator<at::Tensor(const at::Tensor&, const at::Tensor&, const MaybeTensor&, double, int64_t,
                                   int64_t, at::ScalarType)>
      op("trainer::dequantise_nf4");
  MaybeTensor nested_scales;
  if (tensor.double_quantised()) nested_scales = tensor.nested_scales;
  return op(tensor.codes, tensor.scales, nested_scales, static_cast<double>(tensor.offset), first, count,
            type);
}

}  // namespace trainer
