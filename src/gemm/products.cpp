#include "gemm/products.h"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "device/op.h"
#include "device/target_device.h"
#include "gemm/product_round.h"
#include "gemm/product_tiles.h"

namespace trainer {
namespace {

constexpr int64_t kMostWords = 2048;  // words of a line that are packed at once
constexpr int64_t kSmallestSide = 8;

bool is_plain(const at::Tensor& x) {
  return x.layout() == at::kStrided && x.dim() == 2 && (x.stride(0) == 1 || x.stride(1) == 1);
}

// Those for the product; null if there are none.
const ProductTiles* tiles_for(const at::Tensor& x, const at::Tensor& y) {
  if (x.scalar_type() == at::kBFloat16) return y.scalar_type() == at::kBFloat16 ? bf16_tiles() : nullptr;
  const bool known = y.scalar_type() == at::kFloat || y.scalar_type() == at::kBFloat16;
  return x.scalar_type() == at::kFloat && known ? fp32_tiles() : nullptr;
}

// The most places that are packed at once.
int64_t most_depth(const ProductTiles& tiles) { return kMostWords * (tiles.bf16 ? 2 : 1); }

// The rows of x, or the columns of y, all places of each.
ProductOperand lines_of(const at::Tensor& matrix, OperandSide side, const ProductTiles* tiles) {
  const int64_t dimension = side == OperandSide::x ? 0 : 1;
  return {.data = matrix.const_data_ptr(),
          .bf16 = matrix.scalar_type() == at::kBFloat16,
          .line_stride = matrix.stride(dimension),
          .place_stride = matrix.stride(1 - dimension),
          .lines = matrix.size(dimension),
          .depth = matrix.size(1 - dimension),
          .side = side,
          .tiles = tiles};
}

// Some of the lines and places.
ProductOperand part_of(const ProductOperand& whole, int64_t line, int64_t lines, int64_t place,
                       int64_t depth) {
  ProductOperand part = whole;
  const int64_t offset = line * whole.line_stride + place * whole.place_stride;
  part.data = static_cast<const char*>(whole.data) + offset * (whole.bf16 ? 2 : 4);
  part.lines = std::min(lines, whole.lines - line);
  part.depth = std::min(depth, whole.depth - place);
  return part;
}

// The multiple of `unit` lines of which, with as many words each, ProductRound can pack an operand.
int64_t packed_side(int64_t words, int64_t unit) {
  return std::max(ProductRound::kOperandWords / words / unit, int64_t{1}) * unit;
}

// Sums that are computed together, row by row of what is packed at once.
class Products {
 public:
  void add(const at::Tensor& sum, const at::Tensor& x, const at::Tensor& y, double scale, bool begun) {
    const ProductTiles* const tiles = tiles_for(x, y);
    products_.push_back({{sum.mutable_data_ptr(), sum.scalar_type() == at::kBFloat16, sum.stride(0),
                          sum.size(0), sum.size(1)},
                         lines_of(x, OperandSide::x, tiles),
                         lines_of(y, OperandSide::y, tiles),
                         static_cast<float>(scale),
                         begun});
  }

  void compute() {
    if (products_.empty()) return;
    ProductRound round;
    for (auto at = products_.begin(); at != products_.end(); ++at) {
      const auto same_rows = [&](const Product& other) { return other.sum.rows == at->sum.rows; };
      if (std::any_of(products_.begin(), at, same_rows)) continue;
      // Chosen for all products with as many rows, so that those with the same x pack it once.
      const int64_t rows = packed_side(most_words(same_rows), ProductRound::kBlockRows);
      for (int64_t row = 0; row < at->sum.rows; row += rows) {
        for (const Product& product : products_) {
          if (same_rows(product)) add_rows(product, row, rows, round);
        }
      }
    }
    round.run();
    products_.clear();
  }

 private:
  struct Product {
    ProductSum sum;
    ProductOperand x, y;
    float scale;
    bool begun;
  };

  // Returns the words of the longest line that is packed at once.
  template <class Which>
  int64_t most_words(const Which& which) const {
    int64_t words = 1;
    for (const Product& product : products_) {
      if (which(product)) words = std::max(words, std::min(product.x.line_words(), kMostWords));
    }
    return words;
  }

  void add_rows(const Product& product, int64_t row, int64_t rows, ProductRound& round) const {
    const auto same_sum = [&](const Product& other) { return other.sum == product.sum; };
    // Chosen for all products of this sum, so that parts of it never overlap.
    const int64_t columns = packed_side(most_words(same_sum), ProductRound::kBlockColumns);
    const int64_t depth = most_depth(*product.x.tiles);
    for (int64_t place = 0; place < product.x.depth; place += depth) {
      const ProductOperand x = part_of(product.x, row, rows, place, depth);
      for (int64_t column = 0; column < product.sum.columns; column += columns) {
        const ProductOperand y = part_of(product.y, column, columns, place, depth);
        ProductSum sum = product.sum;
        sum.data = static_cast<char*>(sum.data) + (row * sum.row_stride + column) * (sum.bf16 ? 2 : 4);
        sum.rows = x.lines, sum.columns = y.lines;
        round.add(sum, x, y, product.scale, product.begun || place > 0);
      }
    }
  }

  std::vector<Product> products_;
};

void check(const at::Tensor& sum, const at::Tensor& x, const at::Tensor& y) {
  const bool both_bf16 = sum.scalar_type() == at::kBFloat16 && x.scalar_type() == at::kBFloat16;
  TORCH_CHECK(y.size(0) == x.size(1) && sum.size(0) == x.size(0) && sum.size(1) == y.size(1) &&
                  sum.stride(1) == 1 && (sum.scalar_type() == at::kFloat || both_bf16),
              "builtin product: ", x.sizes(), " times ", y.sizes(), " into ", sum.sizes());
}

void add_products_cpu(at::TensorList sums, at::TensorList x, at::TensorList y, at::ArrayRef<double> scales,
                      at::IntArrayRef begun) {
  Products products;
  for (size_t i = 0; i < sums.size(); i++) {
    check(sums[i], x[i], y[i]);
    at::Tensor sum = sums[i];
    // Packed in parts, each of which would be rounded.
    const bool in_parts = sum.scalar_type() == at::kBFloat16 && x[i].size(1) > 2 * kMostWords;
    if (in_parts) {
      products.compute();
      sum = begun[i] != 0 ? sum.to(at::kFloat) : at::empty(sum.sizes(), sum.options().dtype(at::kFloat));
    }
    if (!sum.is_meta()) products.add(sum, x[i], y[i], scales[i], begun[i] != 0);
    if (in_parts) {
      products.compute();
      sums[i].copy_(sum);
    }
  }
  products.compute();
}

// An operator, so that LibTorch's profiler and our tests see these products like those of its libraries.
constexpr Op kAddProducts{"trainer::add_products", add_products_cpu};

}  // namespace

BuiltinTypes builtin_types() {
  return {.fp32 = fp32_tiles() != nullptr,
          .bf16 = bf16_tiles() != nullptr,
          .amx = tiles_of_amx_bf16() != nullptr};
}

bool can_multiply(const at::Tensor& x, const at::Tensor& y) {
  if (target_of(x.device()) != c10::kCPU) return false;
  const bool recorded = at::GradMode::is_enabled() && (x.requires_grad() || y.requires_grad());
  return !recorded && tiles_for(x, y) && is_plain(x) && is_plain(y) && x.size(1) > 0 &&
         std::min(x.size(0), y.size(1)) >= kSmallestSide;
}

void add_builtin_products(const std::vector<SummedProduct>& products) {
  std::vector<at::Tensor> sums, x, y;
  std::vector<double> scales;
  std::vector<int64_t> begun;
  for (const SummedProduct& product : products) {
    sums.push_back(product.sum);
    x.push_back(product.x);
    y.push_back(product.y);
    scales.push_back(product.scale);
    begun.push_back(product.begun);
  }
  kAddProducts(sums, x, y, scales, begun);
}

}  // namespace trainer
