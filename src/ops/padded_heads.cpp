#include "ops/padded_heads.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include "device/operators.h"
#include "ops/matmul.h"

namespace trainer {
namespace {

// Calls copy(token, place) for each token, from several threads.
template <class Copy>
void for_each_token(const at::Tensor& rows, const at::Tensor& places, int64_t width, const Copy& copy) {
  const int64_t *row = rows.const_data_ptr<int64_t>(), *place = places.const_data_ptr<int64_t>();
  at::parallel_for(0, rows.numel(), std::max<int64_t>(1, 32768 / std::max<int64_t>(width, 1)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; i++) copy(row[i], place[i]);
                   });
}

at::Tensor padded_heads_host(const at::Tensor& input, const at::Tensor& rows, const at::Tensor& places,
                             int64_t samples, int64_t length, int64_t heads) {
  const at::Tensor x = input.contiguous();
  const int64_t size = x.size(1) / heads;
  const at::Tensor out = at::empty({samples * heads, length, size}, x.options());
  if (x.is_meta()) return out;
  if (places.numel() < samples * length) out.zero_();
  with_element_type(x, "padded_heads", [&]<class T>() {
    const T* from = x.const_data_ptr<T>();
    T* to = out.mutable_data_ptr<T>();
    for_each_token(rows, places, x.size(1), [&](int64_t row, int64_t place) {
      const int64_t sample = place / length, position = place % length;
      for (int64_t head = 0; head < heads; head++) {
        std::copy_n(from + (row * heads + head) * size, size,
                    to + ((sample * heads + head) * length + position) * size);
      }
    });
  });
  return out;
}

void put_back_host(const at::Tensor& out, const at::Tensor& padded_, const at::Tensor& rows,
                   const at::Tensor& places, int64_t heads) {
  const at::Tensor padded = padded_.to(out.scalar_type()).contiguous();
  if (out.is_meta()) return;
  const int64_t length = padded.size(1), size = padded.size(2);
  with_element_type(out, "put_back", [&]<class T>() {
    const T* from = padded.const_data_ptr<T>();
    T* to = out.mutable_data_ptr<T>();
    for_each_token(rows, places, out.size(1), [&](int64_t row, int64_t place) {
      const int64_t sample = place / length, position = place % length;
      for (int64_t head = 0; head < heads; head++) {
        std::copy_n(from + ((sample * heads + head) * length + position) * size, size,
                    to + (row * heads + head) * size);
      }
    });
  });
}

// What CUDA uses.
at::Tensor padded_heads_composite(const at::Tensor& x, const at::Tensor& rows, const at::Tensor& places,
                                  int64_t samples, int64_t length, int64_t heads) {
  const at::Tensor by_row = at::zeros({samples * length, x.size(1)}, x.options());
  by_row.index_copy_(0, places, x.index_select(0, rows));
  return by_row.view({samples, length, heads, -1}).transpose(1, 2).contiguous().flatten(0, 1);
}

void put_back_composite(const at::Tensor& out, const at::Tensor& padded, const at::Tensor& rows,
                        const at::Tensor& places, int64_t heads) {
  const at::Tensor by_row = padded.unflatten(0, {-1, heads}).transpose(1, 2).flatten(2).flatten(0, 1);
  out.index_copy_(0, rows, by_row.index_select(0, places).to(out.scalar_type()));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(trainer, library) {
  library.def(
      "padded_heads(Tensor x, Tensor rows, Tensor places, int samples, int length, int heads) -> Tensor");
  library.def("put_back(Tensor(a!) out, Tensor padded, Tensor rows, Tensor places, int heads) -> ()");
}
TORCH_LIBRARY_IMPL(trainer, CPU, library) {
  library.impl("padded_heads", padded_heads_host);
  library.impl("put_back", put_back_host);
}
TORCH_LIBRARY_IMPL(trainer, CUDA, library) {
  library.impl("padded_heads", padded_heads_composite);
  library.impl("put_back", put_back_composite);
}
TORCH_LIBRARY_IMPL(trainer, Meta, library) {
  library.impl("padded_heads", ByTarget<padded_heads_host, padded_heads_composite>::call);
  library.impl("put_back", ByTarget<put_back_host, put_back_composite>::call);
}

at::Tensor padded_heads(const at::Tensor& x, const PaddedRows& at, int64_t samples, int64_t heads) {
  static const Operator<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t, int64_t,
                                   int64_t)>
      op("trainer::padded_heads");
  return op(for_products(x), at.rows, at.places, samples, at.length, heads);
}

void put_back(const at::Tensor& out, const at::Tensor& padded, const PaddedRows& at, int64_t heads) {
  static const Operator<void(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                             int64_t)>
      op("trainer::put_back");
  op(out, padded, at.rows, at.places, heads);
}

}  // namespace trainer
