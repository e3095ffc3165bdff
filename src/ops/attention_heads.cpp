#include "ops/attention_heads.h"

#include <algorithm>

#include <ATen/ATen.h>

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
bool move(const Tensors& from, const Tensors& to) {
  const at::Tensor& first = from[0];
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
  const Kernels* kernels =
      fits_int(count / width) ? kernels_for(first, kernel_files::attention_heads, width) : nullptr;
  if (kernels == nullptr) return false;
  KernelGrid grid = grid_of(count / width);
  grid.y = static_cast<int64_t>(from.size());
  kernels->start("move_heads", grid, moves, batch, static_cast<int>(heads), static_cast<int>(cols));
  return true;
}

void move_or_copy(const Tensors& from, const Tensors& to) {
  if (move(from, to)) return;
  for (size_t i = 0; i < from.size(); i++) to[i].copy_(from[i]);
}

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

}  // namespace trainer
