// Dropout on a GPU: dropout.cu, or LibTorch's operators.
#include <algorithm>

#include <ATen/ATen.h>

#include "base/dropout_mask.h"
#include "ops/dropout.h"
#include "ops/kernel_mask.h"
#include "ops/kernels.h"

namespace trainer {
namespace {

// Returns x >> n, treating the 64 bits as unsigned.
at::Tensor shift_right(const at::Tensor& x, int64_t n) {
  return at::bitwise_right_shift(x, at::Scalar(n)).bitwise_and_(at::Scalar((int64_t{1} << (64 - n)) - 1));
}

// SplitMix64's finaliser (base/random.h, mix64) on a tensor; signed arithmetic wraps to the same bits.
at::Tensor mix64_tensor(at::Tensor x) {
  x = x + static_cast<int64_t>(0x9e3779b97f4a7c15ull);
  x = (x.bitwise_xor(shift_right(x, 30))) * static_cast<int64_t>(0xbf58476d1ce4e5b9ull);
  x = (x.bitwise_xor(shift_right(x, 27))) * static_cast<int64_t>(0x94d049bb133111ebull);
  return x.bitwise_xor(shift_right(x, 31));
}

// x [rows, cols], row_keys [rows]
at::Tensor drop_rows(const at::Tensor& x, const at::Tensor& row_keys, int64_t key, double p) {
  constexpr int64_t low32 = 0xffffffff;
  const int64_t cols = x.size(-1);
  const at::Tensor k = mix64_tensor(row_keys.unsqueeze(1).bitwise_xor(at::Scalar(key)));
  at::Tensor h = at::arange(cols, row_keys.options()).mul_(static_cast<int64_t>(kRandomStride)) +
                 k.bitwise_and(at::Scalar(low32));
  h.bitwise_and_(at::Scalar(low32));
  h.bitwise_xor_(at::bitwise_right_shift(h, at::Scalar(16)));
  h.mul_(static_cast<int64_t>(kRandomRound1)).bitwise_and_(at::Scalar(low32));
  h.bitwise_xor_(shift_right(k, 32));
  h.bitwise_xor_(at::bitwise_right_shift(h, at::Scalar(15)));
  h.mul_(static_cast<int64_t>(kRandomRound2)).bitwise_and_(at::Scalar(low32));
  h.bitwise_xor_(at::bitwise_right_shift(h, at::Scalar(16)));
  const at::Tensor keep = h.ge(static_cast<int64_t>(mask_threshold(p)));
  const at::Tensor scaled = (x.to(at::kFloat) * static_cast<float>(1.0 / (1.0 - p))).to(x.scalar_type());
  return scaled.masked_fill_(keep.logical_not(), 0.0);
}

}  // namespace

// Works on a few rows at a time: the hashes of an element take 16 bytes, several times its own size.
at::Tensor dropout_composite(const at::Tensor& x, const at::Tensor& row_keys, int64_t key, double p) {
  constexpr int64_t kPiece = 1 << 22;
  const at::Tensor rows = x.reshape({-1, x.size(-1)}), keys = row_keys.reshape({-1});
  const int64_t step = std::max<int64_t>(1, kPiece / std::max<int64_t>(rows.size(1), 1));
  if (step >= rows.size(0)) return drop_rows(rows, keys, key, p).view(x.sizes());
  at::Tensor out = at::empty(rows.sizes(), x.options());
  for (int64_t row = 0; row < rows.size(0); row += step) {
    const int64_t count = std::min(step, rows.size(0) - row);
    out.narrow(0, row, count)
        .copy_(drop_rows(rows.narrow(0, row, count), keys.narrow(0, row, count), key, p));
  }
  return out.view(x.sizes());
}

at::Tensor dropout_gpu(const at::Tensor& input, const at::Tensor& row_keys, int64_t key, double p) {
  const at::Tensor x = input.contiguous(), keys = row_keys.contiguous();
  const int64_t cols = x.size(-1), rows = x.numel() / std::max<int64_t>(cols, 1);
  TORCH_CHECK(row_keys.numel() == rows, "dropout: ", rows, " rows, but ", row_keys.numel(), " row keys");
  const int64_t width = width_for(cols, {x}), count = x.numel() / width;
  const Kernels* kernels = fits_int(count) ? kernels_for(x, kernel_files::dropout, width) : nullptr;
  if (kernels == nullptr) return dropout_composite(input, row_keys, key, p);
  at::Tensor out = at::empty_like(x);
  kernels->start("drop", grid_of(count), elements(x, x), elements(keys, x, at::kLong), out.mutable_data_ptr(),
                 static_cast<int>(cols), KernelMask(key, p), static_cast<unsigned>(count));
  return out;
}

}  // namespace trainer
