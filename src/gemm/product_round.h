// The products that threads compute together: they pack the operands of all, wait for each other once, and
// compute the sums block by block. An operand that several products share is packed once.
//
// The order is that of Goto and van de Geijn (Anatomy of High-Performance Matrix Multiplication, 2008): a
// block of x stays in the second-level cache and a panel of y in the first-level one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gemm/product_lines.h"
#include "gemm/product_tiles.h"

namespace trainer {

enum class OperandSide { x, y };

// Rows of x or columns of y, over the places that are summed. Place p of line i is at
// data + i * line_stride + p * place_stride, in elements; one of the strides is 1.
struct ProductOperand {
  const void* data;
  bool bf16;  // else fp32
  int64_t line_stride, place_stride;
  int64_t lines, depth;
  OperandSide side;
  const ProductTiles* tiles;  // for bf16, of matrices that are both bf16

  bool operator==(const ProductOperand&) const = default;
  int64_t width() const { return side == OperandSide::x ? tiles->rows : tiles->columns; }
  int64_t panels() const { return (lines + width() - 1) / width(); }
  // Words of a line.
  int64_t words() const { return tiles->bf16 ? (depth + 1) / 2 : depth; }
  // Words of a packed line.
  int64_t line_words() const { return in_rows() ? line_of_words(words()) : words(); }
  bool in_rows() const { return side == OperandSide::x && tiles->x_in_rows; }
  int64_t packed_words() const { return panels() * width() * line_words(); }
  // Returns whether tiles can read it unpacked: whole words of x's rows, or whole panels of an fp32 y.
  bool is_plain() const;
  // Packs `count` panels from the `first` on.
  void pack(int64_t first, int64_t count, float* packed) const;
};

// The destination of a product: [rows, columns], with the columns contiguous.
struct ProductSum {
  void* data;
  bool bf16;  // else fp32
  int64_t row_stride, rows, columns;

  bool operator==(const ProductSum&) const = default;
};

class ProductRound {
 public:
  // A thread computes blocks of a sum, of at most so many rows and columns.
  static constexpr int64_t kBlockRows = 96, kMostBlockRows = 3 * kBlockRows, kBlockColumns = 128;
  static constexpr int64_t kOperandWords = 1 << 20;  // the most that a packed operand may have
  // Room for one operand of that size and for small ones, such as adapters'.
  static constexpr int64_t kMemoryWords = kOperandWords + (1 << 16);

  ProductRound();

  // Adds the product of x and y, times `scale`, to the sum, or makes it the sum if that has not begun.
  // Products of the same sum are added in the order of the calls; a bf16 sum is rounded after each. Different
  // sums do not overlap. The product may be computed by a later call; no operand is a sum before run(). x and
  // y have the same tiles.
  void add(const ProductSum& sum, const ProductOperand& x, const ProductOperand& y, float scale, bool begun);
  // Computes what is left.
  void run();

 private:
  // Packed operands. The thread keeps the memory for its next round.
  struct Memory {
    struct Entry {
      ProductOperand operand;
      float* packed;
    };
    float* data;  // kMemoryWords
    std::vector<Entry> entries{};
    int64_t used = 0;   // words
    size_t packed = 0;  // entries that an earlier round has packed

    // Returns where the operand is or will be packed; null if it has no room.
    const float* find(const ProductOperand& operand);
    bool has(const ProductOperand& operand) const;
    void clear() { entries.clear(), used = 0, packed = 0; }
  };
  struct Term {
    size_t sum;  // in sums_
    ProductPanels x, y;
    const ProductTiles* tiles;
    int64_t words;
    float scale;
    bool begun;
  };
  // A part of a sum: its first row and column, and how many of each.
  struct Block {
    int64_t row, column, rows, columns;
  };

  ProductPanels panels_of_x(const ProductOperand& x, int64_t columns);
  ProductPanels panels_of_y(const ProductOperand& y);
  void compute();
  void pack_panels(int64_t first, int64_t count) const;
  int64_t blocks_of(int64_t rows) const;
  int64_t rows_of_blocks() const;
  void compute_block(int64_t block, int64_t block_rows) const;
  static void add_and_round(const ProductSum& sum, const Term& term, const Block& block);
  static void add(const Term& term, const Block& block, const ProductPlace& place);

  Memory x_, y_;
  std::vector<ProductSum> sums_;
  std::vector<Term> terms_;
};

}  // namespace trainer
