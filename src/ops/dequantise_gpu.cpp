// NF4 to numbers on a GPU: nf4.cu, or LibTorch's operators.
#include <algorithm>

#include <ATen/ATen.h>

#include "formats/bitsandbytes.h"
#include "ops/dequantise.h"
#include "ops/kernels.h"

namespace trainer {
namespace {

// As the kernel takes it.
struct Nf4Maps {
  std::array<float, 16> values = kNf4Values;
  DynamicMap scales = dynamic_map(true);
};

at::Tensor map_on(const at::Tensor& like, const float* values, int64_t count) {
  return at::from_blob(const_cast<float*>(values), {count}, at::kFloat).to(like.device());
}

// The values first - first % 64 to the end of the last block.
at::Tensor dequantise_composite(const at::Tensor& codes, const at::Tensor& scales,
                                const at::Tensor& nested_scales, float offset, int64_t first, int64_t count,
                                at::ScalarType type) {
  static const Nf4Maps maps;
  const int64_t block = first / kNf4Block, end = first + count;
  const int64_t blocks = (end + kNf4Block - 1) / kNf4Block - block, begin = block * kNf4Block;
  const at::Tensor bytes =
      codes.narrow(0, begin / 2, std::min(blocks * kNf4Block / 2, codes.numel() - begin / 2));
  const at::Tensor both = at::stack({at::bitwise_right_shift(bytes, 4), bytes.bitwise_and(15)}, 1).view({-1});
  const at::Tensor values = map_on(codes, maps.values.data(), 16).index_select(0, both.to(at::kInt));
  at::Tensor scale = scales.narrow(0, block, blocks);
  if (nested_scales.defined()) {
    const at::Tensor group = at::arange(block, block + blocks, scale.options().dtype(at::kLong));
    scale = map_on(codes, maps.scales.data(), 256).index_select(0, scale.to(at::kInt)) *
            nested_scales.index_select(0, at::floor_divide(group, kNf4ScaleBlock));
    scale.add_(offset);
  }
  const at::Tensor each = scale.repeat_interleave(kNf4Block).narrow(0, 0, values.numel());
  return (values * each).narrow(0, first - begin, count).to(type);
}

}  // namespace

at::Tensor dequantise_nf4_gpu(const at::Tensor& codes, const at::Tensor& scales,
                              const at::Tensor& nested_scales, double offset, int64_t first, int64_t count,
                              at::ScalarType type) {
  static const Nf4Maps maps;
  const at::Tensor out = at::empty({count}, codes.options().dtype(type));
  const int64_t wide = 16 / static_cast<int64_t>(out.element_size());
  const int64_t width = first % kNf4Block == 0 && count % wide == 0 ? wide : 1;
  const Kernels* kernels = kernels_for(out, kernel_files::nf4, width);
  const auto narrow = static_cast<float>(offset);
  if (kernels == nullptr)
    return dequantise_composite(codes, scales, nested_scales, narrow, first, count, type);
  const void* nested = nested_scales.defined() ? elements(nested_scales, out, at::kFloat) : nullptr;
  kernels->start("dequantise", grid_of(count / width), elements(codes, out, at::kByte),
                 scales.const_data_ptr(), nested, narrow, maps, first, out.mutable_data_ptr(), count / width);
  return out;
}

}  // namespace trainer
