#include "ops/attention_heads.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "device/op.h"
#include "ops/kernels.h"
#include "ops/matmul.h"

namespace trainer {
namespace {

using Tensors = std::vector<at::Tensor>;

// The same as in attention_heads.cu.
struct HeadsMove {
  const void* from;
  void* to;
  int64_t from_batch, from_head, from_row, to_batch, to_head, to_row, rows;
};
struct HeadsMoves {
  HeadsMove of[4];
};

// Copies each [batch, heads, rows, cols] with one launch. Returns false if no kernel fits: on a CPU, or if a
// type changes.
bool move_by_kernel(const Tensors& from, const Tensors& to) {
  const at::Tensor& first = from[0];
  if (!has_kernels(first.device())) return false;
  const int64_t batch = first.size(0), heads = first.size(1), cols = first.size(3);
  int64_t width = 8, count = 0;
  HeadsMoves moves{};
  TORCH_CHECK(from.size() <= std::size(moves.of), "attention: ", from.size(), " tensors to move");
  for (size_t i = 0; i < from.size(); i++) {
    const at::Tensor &a = from[i], &b = to[i];
    if (a.scalar_type() != first.scalar_type() || b.scalar_type() != first.scalar_type()) return false;
    if (a.stride(3) != 1 || b.stride(3) != 1) return false;
    width = std::min(
        width, width_for(cols, {a, b},
                         {a.stride(0), a.stride(1), a.stride(2), b.stride(0), b.stride(1), b.stride(2)}));
    moves.of[i] = {elements(a, first), b.mutable_data_ptr(), a.stride(0), a.stride(1), a.stride(2),
                   b.stride(0),        b.stride(1),          b.stride(2), a.size(2)};
    count = std::max(count, a.numel());
  }
  if (!fits_int(count / width)) return false;
  KernelGrid grid = grid_of(count / width);
  grid.y = static_cast<int64_t>(from.size());
  kernels_for(first, "attention_heads", width)
      .start("move_heads", grid, moves, batch, static_cast<int>(heads), static_cast<int>(cols));
  return true;
}

void move_or_copy(const Tensors& from, const Tensors& to) {
  if (move_by_kernel(from, to)) return;
  for (size_t i = 0; i < from.size(); i++) to[i].copy_(from[i]);
}

// Calls copy(token, place) for each token, from several threads.
template <class Copy>
void for_each_token(const at::Tensor& rows, const at::Tensor& places, int64_t width, const Copy& copy) {
  const int64_t *row = rows.const_data_ptr<int64_t>(), *place = places.const_data_ptr<int64_t>();
  at::parallel_for(0, rows.numel(), std::max<int64_t>(1, 32768 / std::max<int64_t>(width, 1)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; i++) copy(row[i], place[i]);
                   });
}

at::Tensor padded_heads_cpu(const at::Tensor& input, const at::Tensor& rows, const at::Tensor& places,
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

void put_back_cpu(const at::Tensor& out, const at::Tensor& padded_, const at::Tensor& rows,
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

// A GPU has LibTorch's operators for it.
at::Tensor padded_heads_gpu(const at::Tensor& x, const at::Tensor& rows, const at::Tensor& places,
                            int64_t samples, int64_t length, int64_t heads) {
  const at::Tensor by_row = at::zeros({samples * length, x.size(1)}, x.options());
  by_row.index_copy_(0, places, x.index_select(0, rows));
  return by_row.view({samples, length, heads, -1}).transpose(1, 2).contiguous().flatten(0, 1);
}

void put_back_gpu(const at::Tensor& out, const at::Tensor& padded, const at::Tensor& rows,
                  const at::Tensor& places, int64_t heads) {
  const at::Tensor by_row = padded.unflatten(0, {-1, heads}).transpose(1, 2).flatten(2).flatten(0, 1);
  out.index_copy_(0, rows, by_row.index_select(0, places).to(out.scalar_type()));
}

constexpr Op kPaddedHeads{"trainer::padded_heads", padded_heads_cpu, padded_heads_gpu};
constexpr Op kPutBack{"trainer::put_back", put_back_cpu, put_back_gpu};

}  // namespace

Tensors heads_first(const Tensors& tensors) {
  Tensors heads, out;
  for (const at::Tensor& x : tensors) {
    heads.push_back(at::empty(x.sizes(), x.options().dtype(product_type(x))));
    out.push_back(heads.back().flatten(0, 1));
  }
  move_or_copy(tensors, heads);
  return out;
}

Tensors heads_last(const Tensors& tensors, int64_t batch, at::ScalarType type) {
  Tensors heads, out;
  for (const at::Tensor& x : tensors) {
    const at::Tensor& from = heads.emplace_back(x.unflatten(0, {batch, -1}));
    const at::Tensor to =
        at::empty({batch, from.size(2), from.size(1), from.size(3)}, x.options().dtype(type));
    out.push_back(to.transpose(1, 2));
  }
  move_or_copy(heads, out);
  return out;
}

at::Tensor empty_by_position(const at::Tensor& x) {
  return at::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options()).transpose(1, 2);
}

at::Tensor padded_heads(const at::Tensor& x, const PaddedRows& at, int64_t samples, int64_t heads) {
  return kPaddedHeads(for_products(x), at.rows, at.places, samples, at.length, heads);
}

void put_back(const at::Tensor& out, const at::Tensor& padded, const PaddedRows& at, int64_t heads) {
  kPutBack(out, padded, at.rows, at.places, heads);
}

}  // namespace trainer
