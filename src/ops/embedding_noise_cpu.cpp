// The loop of noise on the CPU.
#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/dropout_mask.h"
#include "base/vector_math.h"
#include "ops/embedding_noise.h"

namespace trainer {
namespace {

template <class T>
TRAINER_VECTORISED void noise_of_row(T* __restrict__ out, int64_t cols, RowMask mask, float size) {
  for (int64_t col = 0; col < cols; col++) {
    const auto bits = static_cast<float>(random_bits(mask.low, mask.high, static_cast<uint32_t>(col)));
    out[col] = static_cast<T>((bits * 0x1p-31F - 1.0F) * size);
  }
}

}  // namespace

at::Tensor noise_cpu(const at::Tensor& like, const at::Tensor& row_keys, const at::Tensor& sizes_,
                     int64_t key) {
  const at::Tensor keys = row_keys.contiguous(), sizes = sizes_.contiguous();
  at::Tensor out = at::empty(like.sizes(), like.options());
  const int64_t cols = like.size(-1), rows = like.numel() / std::max<int64_t>(cols, 1);
  TORCH_CHECK(keys.numel() == rows && sizes.numel() == rows, "noise: ", rows, " rows, but ", keys.numel(),
              " row keys and ", sizes.numel(), " sizes");
  if (out.is_meta()) return out;
  const int64_t* row_key = keys.const_data_ptr<int64_t>();
  const float* size = sizes.const_data_ptr<float>();
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, out.scalar_type(), "noise", [&] {
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, rows, std::max<int64_t>(1, 32768 / std::max<int64_t>(cols, 1)),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t row = begin; row < end; row++)
                         noise_of_row(to + row * cols, cols, RowMask(row_key[row], key, 0.0), size[row]);
                     });
  });
  return out;
}

}  // namespace trainer
