// Small products of one thread, as those of attention are: their operands are packed in memory of the
// thread, and what they give stays there for the next product.
#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

#include "gemm/product_lines.h"
#include "gemm/product_packing.h"
#include "gemm/product_tiles.h"

namespace trainer {

// A matrix in fp32 or bf16, with contiguous rows.
struct MatrixRows {
  char* data;
  int64_t stride, rows, columns;  // stride: from one row to the next, in elements
  bool bf16;

  MatrixRows(void* at, int64_t row_stride, int64_t n, int64_t width, bool narrow)
      : data(static_cast<char*>(at)), stride(row_stride), rows(n), columns(width), bf16(narrow) {}
  // Rows of one head, [count, head_dim], of x [batch, heads, rows, head_dim].
  MatrixRows(const at::Tensor& x, int64_t sample, int64_t head, int64_t first, int64_t count);
};

// An operand in the layout of tiles.
struct PackedLines {
  const float* data;
  int64_t words;    // words of a line
  int64_t row = 0;  // from one line to the next, for tiles that read x in rows
};

// Returns the tiles for products of tensors like x; null: there are none.
const ProductTiles* attention_tiles(const at::Tensor& x);

// The destination of a product, in fp32.
struct WideRows {
  float* data;
  int64_t stride, rows, columns;
};

// Memory that is taken piece by piece, and the products of what is in it. Matrices have the type of the
// tiles' words.
class ProductWorkspace {
 public:
  ProductWorkspace(const ProductTiles& tiles, float* memory) : tiles_(tiles), at_(memory) {}

  // Words that an operand or a matrix of so many rows and columns takes, in any layout and with any tiles.
  static int64_t words(int64_t rows, int64_t columns);

  float* take(int64_t words);
  float* take_zeros(int64_t words);
  float* mark() const { return at_; }
  void release(float* mark) { at_ = mark; }

  // A matrix as the left or the right operand of a product, as it is or transposed.
  PackedLines x_of(const MatrixRows& m);
  PackedLines x_of_transposed(const MatrixRows& m);
  PackedLines y_of(const MatrixRows& m);
  PackedLines y_of_transposed(const MatrixRows& m);

  // sum = scale x y, or sum += scale x y, over the first `places`.
  void multiply(const PackedLines& x, const PackedLines& y, int64_t places, const WideRows& sum, double scale,
                bool add) const;
  // Fp32 rows as operands: themselves, or rounded.
  MatrixRows operand(const WideRows& from);
  // Writes fp32 rows, one behind the other, to a tensor's.
  void put(const float* from, const MatrixRows& to) const;
  // A tensor's rows in fp32, one behind the other.
  float* wide(const MatrixRows& from);

 private:
  using Pack = void(PackedWords, const void*, int64_t, int64_t, int64_t, int64_t, float*);
  int64_t words_of(int64_t places) const { return tiles_.bf16 ? (places + 1) / 2 : places; }
  using PackInLines = void(const c10::BFloat16*, int64_t, int64_t, int64_t, float*);
  PackedLines pack(Pack with, const MatrixRows& m, int64_t lines, int64_t places, int64_t width);
  PackedLines pack_in_lines(PackInLines with, const MatrixRows& m, int64_t lines, int64_t places);

  const ProductTiles& tiles_;
  float* at_;
};

// A workspace of so many words for each thread.
class ThreadWorkspaces {
 public:
  // The options say where: on meta, for a plan.
  ThreadWorkspaces(const ProductTiles& tiles, int64_t words, const at::TensorOptions& options);

  // Calls `with` for each task with a workspace that nothing has been taken of. Threads take tasks as they
  // become free. On meta nothing is called.
  void for_tasks(int64_t tasks, const std::function<void(int64_t task, ProductWorkspace&)>& with) const;

 private:
  const ProductTiles& tiles_;
  at::Tensor memory_;
};

}  // namespace trainer
