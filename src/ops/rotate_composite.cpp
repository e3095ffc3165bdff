// The rotary embedding by LibTorch's operators.
#include <ATen/ATen.h>

#include "ops/rotate.h"

namespace trainer {

at::Tensor empty_by_position(const at::Tensor& x) {
  return at::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options()).transpose(1, 2);
}

at::Tensor rotate_composite(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool back) {
  const int64_t half = cos.size(-1), rest = x.size(-1) - 2 * half;
  const at::Tensor x1 = x.narrow(-1, 0, half), x2 = x.narrow(-1, half, half);
  at::Tensor out = empty_by_position(x);
  at::Tensor y1 = out.narrow(-1, 0, half), y2 = out.narrow(-1, half, half);
  const int direction = back ? -1 : 1;
  at::mul_out(y1, x1, cos).sub_(x2 * sin, direction);
  at::mul_out(y2, x2, cos).add_(x1 * sin, direction);
  if (rest > 0) out.narrow(-1, 2 * half, rest).copy_(x.narrow(-1, 2 * half, rest));
  return out;
}

}  // namespace trainer
