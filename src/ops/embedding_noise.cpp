#include "ops/embedding_noise.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "device/op.h"
#include "ops/kernels.h"

namespace trainer {
namespace {

at::Tensor noise_gpu(const at::Tensor& like, const at::Tensor& row_keys, const at::Tensor& sizes,
                     int64_t key) {
  const at::Tensor keys = row_keys.contiguous(), of_rows = sizes.contiguous();
  at::Tensor out = at::empty(like.sizes(), like.options());
  const int64_t cols = like.size(-1), rows = like.numel() / std::max<int64_t>(cols, 1);
  TORCH_CHECK(keys.numel() == rows && of_rows.numel() == rows, "noise: ", rows, " rows, but ", keys.numel(),
              " row keys and ", of_rows.numel(), " sizes");
  const int64_t width = width_for(cols, {out});
  const Kernels& kernels = kernels_for(out, "embedding_noise", width);
  const void *row_key = elements(keys, out, at::kLong), *size = elements(of_rows, out, at::kFloat);
  void* const to = out.mutable_data_ptr();
  for_rows_that_fit(rows, cols / width, [&](int64_t first, int64_t count) {
    const int64_t pieces = count * (cols / width);
    kernels.start("noise", grid_of(pieces), element_at(row_key, keys, first),
                  element_at(size, of_rows, first), element_at(to, out, first * cols), static_cast<int>(cols),
                  KernelMask(key, 0.0), static_cast<unsigned>(pieces));
  });
  return out;
}

constexpr Op kNoise{"trainer::embedding_noise", noise_cpu, noise_gpu};

}  // namespace

at::Tensor with_noise(const at::Tensor& x, const at::Tensor& row_keys, const at::Tensor& sizes,
                      uint64_t key) {
  return x + kNoise(x.detach(), row_keys, sizes, static_cast<int64_t>(key));
}

std::vector<float> noise_sizes(const std::vector<int64_t>& lengths, double alpha, int64_t cols, int64_t seq) {
  std::vector<float> sizes;
  for (const int64_t length : lengths) {
    const double size = alpha / std::sqrt(static_cast<double>(length * cols));
    sizes.insert(sizes.end(), static_cast<size_t>(seq > 0 ? seq : length), static_cast<float>(size));
  }
  return sizes;
}

}  // namespace trainer
