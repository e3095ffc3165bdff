// add_norm() on the CPU: each row is dropped out, added and normed while it is in the processor's cache.
#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/dropout_mask.h"
#include "base/vector_math.h"
#include "device/op.h"
#include "ops/add_norm.h"
#include "ops/rms_norm_rows.h"

namespace trainer {
namespace {

// Every step is rounded, as the operators one after another round.
template <class T>
TRAINER_VECTORISED void sum_row(const T* __restrict__ x, const T* __restrict__ y, T* __restrict__ h,
                                int64_t columns) {
  for (int64_t c = 0; c < columns; c++)
    h[c] = static_cast<T>(static_cast<float>(x[c]) + static_cast<float>(y[c]));
}

template <class T>
TRAINER_VECTORISED void sum_row_with_dropout(const T* __restrict__ x, const T* __restrict__ y,
                                             T* __restrict__ h, int64_t columns, RowMask mask) {
  for (int64_t c = 0; c < columns; c++)
    h[c] = static_cast<T>(static_cast<float>(mask.drop(y[c], c)) + static_cast<float>(x[c]));
}

template <class T>
TRAINER_VECTORISED void add_row(T* __restrict__ sum, const T* __restrict__ x, int64_t columns) {
  for (int64_t c = 0; c < columns; c++)
    sum[c] = static_cast<T>(static_cast<float>(sum[c]) + static_cast<float>(x[c]));
}

template <class T>
TRAINER_VECTORISED void dropped_row(const T* __restrict__ x, T* __restrict__ out, int64_t columns,
                                    RowMask mask) {
  for (int64_t c = 0; c < columns; c++) out[c] = mask.drop(x[c], c);
}

// Calls body(row) for each row, from several threads.
template <class Body>
void for_rows(int64_t rows, int64_t columns, const Body& body) {
  at::parallel_for(0, rows, std::max<int64_t>(1, 16384 / std::max<int64_t>(columns, 1)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t row = begin; row < end; row++) body(row);
                   });
}

// Returns the keys of the rows; nullptr without dropout.
const int64_t* keys_of(const at::Tensor& keys) {
  return keys.defined() && !keys.is_meta() ? keys.const_data_ptr<int64_t>() : nullptr;
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> add_norm_cpu(const at::Tensor& x_, const at::Tensor& y_,
                                                            const at::Tensor& weight_,
                                                            const PartDropout& dropped, double epsilon,
                                                            bool plus_one) {
  const std::optional<at::Tensor>& row_keys = dropped.row_keys;
  const at::Tensor x = x_.contiguous(), y = y_.contiguous(), weight = weight_.contiguous();
  const at::Tensor keys = row_keys ? row_keys->contiguous() : at::Tensor();
  const int64_t columns = x.size(-1), rows = x.numel() / std::max<int64_t>(columns, 1);
  TORCH_CHECK(y.sizes() == x.sizes() && y.scalar_type() == x.scalar_type() &&
                  weight.scalar_type() == x.scalar_type() && (!row_keys || keys.numel() == rows),
              "add_norm: ", x.sizes(), " and ", y.sizes());
  at::Tensor h = at::empty_like(x), n = at::empty_like(x);
  at::Tensor rstd = at::empty({rows}, x.options().dtype(at::kFloat));
  if (x.is_meta()) return {h, n, rstd};
  with_kind(x, "add_norm", plus_one, [&]<class T, bool plus>() {
    const T *from_x = x.const_data_ptr<T>(), *from_y = y.const_data_ptr<T>(),
            *by = weight.const_data_ptr<T>();
    T *to_h = h.mutable_data_ptr<T>(), *to_n = n.mutable_data_ptr<T>();
    float* to_rstd = rstd.mutable_data_ptr<float>();
    const int64_t* row_key = keys_of(keys);
    for_rows(rows, columns, [&](int64_t row) {
      const int64_t at = row * columns;
      if (row_key != nullptr) {
        sum_row_with_dropout(from_x + at, from_y + at, to_h + at, columns,
                             RowMask(row_key[row], dropped.key, dropped.p));
      } else {
        sum_row(from_x + at, from_y + at, to_h + at, columns);
      }
      norm_rows<T, plus>(to_h + at, by, to_n + at, to_rstd + row, 1, columns, static_cast<float>(epsilon));
    });
  });
  return {h, n, rstd};
}

std::tuple<at::Tensor, at::Tensor> add_norm_backward_cpu(const at::Tensor& grad,
                                                         const std::optional<at::Tensor>& grad_h,
                                                         const at::Tensor& h_, const at::Tensor& weight_,
                                                         const at::Tensor& rstd, const PartDropout& dropped,
                                                         bool plus_one) {
  const std::optional<at::Tensor>& row_keys = dropped.row_keys;
  const at::Tensor g = grad.contiguous(), h = h_.contiguous(), weight = weight_.contiguous();
  const at::Tensor other = grad_h ? grad_h->contiguous() : at::Tensor();
  const at::Tensor keys = row_keys ? row_keys->contiguous() : at::Tensor();
  const int64_t columns = h.size(-1), rows = rstd.numel();
  at::Tensor gx = at::empty_like(h), gy;
  if (row_keys) gy = at::empty_like(h);
  if (h.is_meta()) return {gx, gy};
  with_kind(h, "add_norm_backward", plus_one, [&]<class T, bool plus>() {
    const T *from_g = g.const_data_ptr<T>(), *from_h = h.const_data_ptr<T>(),
            *by = weight.const_data_ptr<T>();
    const T* from_other = other.defined() ? other.const_data_ptr<T>() : nullptr;
    const float* inverse = rstd.const_data_ptr<float>();
    T *to_x = gx.mutable_data_ptr<T>(), *to_y = row_keys ? gy.mutable_data_ptr<T>() : nullptr;
    const int64_t* row_key = keys_of(keys);
    for_rows(rows, columns, [&](int64_t row) {
      const int64_t at = row * columns;
      norm_rows_grad_x<T, plus>(from_g + at, from_h + at, by, inverse + row, to_x + at, 1, columns);
      if (from_other != nullptr) add_row(to_x + at, from_other + at, columns);
      if (row_key != nullptr)
        dropped_row(to_x + at, to_y + at, columns, RowMask(row_key[row], dropped.key, dropped.p));
    });
  });
  return {gx, gy};
}

}  // namespace trainer
