// The rotary embedding on a GPU: kernels/rotate.cu, or LibTorch's operators.
#include <ATen/ATen.h>

#include "nn/kernels.h"
#include "nn/rotate.h"

namespace trainer {
namespace {

// The same as in kernels/rotate.cu.
struct RotateLayout {
  int64_t x_batch, x_head, x_position, table_batch;
  int heads, seq, half;
};

}  // namespace

at::Tensor empty_by_position(const at::Tensor& x) {
  return at::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options()).transpose(1, 2);
}

at::Tensor rotate_composite(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool back) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor x1 = x.narrow(-1, 0, half), x2 = x.narrow(-1, half, half);
  at::Tensor out = empty_by_position(x);
  at::Tensor y1 = out.narrow(-1, 0, half), y2 = out.narrow(-1, half, half);
  const int direction = back ? -1 : 1;
  at::mul_out(y1, x1, cos).sub_(x2 * sin, direction);
  at::mul_out(y2, x2, cos).add_(x1 * sin, direction);
  return out;
}

at::Tensor rotate_gpu(const at::Tensor& input, const at::Tensor& cos, const at::Tensor& sin, bool back) {
  const at::Tensor x = input.stride(3) == 1 ? input : input.contiguous();
  const at::Tensor c = cos.contiguous(), s = sin.contiguous();
  const int64_t batch = x.size(0), heads = x.size(1), seq = x.size(2), half = x.size(3) / 2;
  const int64_t width = width_for(half, {x, c, s}, {x.stride(0), x.stride(1), x.stride(2)});
  const int64_t count = batch * heads * seq * half / width;
  const Kernels* kernels = fits_int(count) ? kernels_for(x, kernel_files::rotate, width) : nullptr;
  if (kernels == nullptr) return rotate_composite(input, cos, sin, back);
  at::Tensor out = empty_by_position(x);
  const bool of_each_row = c.numel() > seq * half;
  TORCH_CHECK(c.numel() == (of_each_row ? batch : 1) * seq * half && s.numel() == c.numel(), "rotate: x ",
              x.sizes(), " with tables ", c.sizes());
  const RotateLayout layout{x.stride(0),
                            x.stride(1),
                            x.stride(2),
                            of_each_row ? seq * half : 0,
                            static_cast<int>(heads),
                            static_cast<int>(seq),
                            static_cast<int>(half)};
  kernels->start("rotate_heads", grid_of(count), elements(x, x), elements(c, x), elements(s, x),
                 out.mutable_data_ptr(), layout, back ? -1.0f : 1.0f, static_cast<unsigned>(count));
  return out;
}

}  // namespace trainer
