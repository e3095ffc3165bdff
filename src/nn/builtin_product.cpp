#include "nn/builtin_product.h"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include "trainer/device/target_device.h"
#include "trainer/nn/cpu_products.h"

#include "nn/operators.h"
#include "nn/product_round.h"

namespace trainer {
namespace {

constexpr int64_t kMostDepth = 2048;  // packed at once
constexpr int64_t kSmallestSide = 8;

bool is_plain(const at::Tensor& x) {
  return x.layout() == at::kStrided && x.dim() == 2 && (x.stride(0) == 1 || x.stride(1) == 1);
}

// The lines of a matrix along a dimension (0: rows of x, 1: columns of y), all places of each.
ProductOperand lines_of(const at::Tensor& matrix, int64_t dimension, int64_t width, double scale) {
  return {.data = matrix.const_data_ptr(),
          .bf16 = matrix.scalar_type() == at::kBFloat16,
          .line_stride = matrix.stride(dimension),
          .place_stride = matrix.stride(1 - dimension),
          .lines = matrix.size(dimension),
          .depth = matrix.size(1 - dimension),
          .width = width,
          .scale = static_cast<float>(scale)};
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

// The multiple of `unit` of which, with `depth`, ProductRound can pack an operand.
int64_t packed_side(int64_t depth, int64_t unit) {
  return std::max(ProductRound::kOperandElements / depth / unit, int64_t{1}) * unit;
}

// Sums that are computed together, row by row of what is packed at once.
class Products {
 public:
  void add(const at::Tensor& sum, const at::Tensor& x, const at::Tensor& y, double scale, bool begun) {
    products_.push_back({{sum.mutable_data_ptr<float>(), sum.stride(0), sum.size(0), sum.size(1)},
                         lines_of(x, 0, kTileRows, 1.0),
                         lines_of(y, 1, kTileColumns, scale),
                         begun});
  }

  void compute() const {
    if (products_.empty()) return;
    ProductRound round;
    for (auto at = products_.begin(); at != products_.end(); ++at) {
      const auto same_rows = [&](const Product& other) { return other.sum.rows == at->sum.rows; };
      if (std::any_of(products_.begin(), at, same_rows)) continue;
      // Of all alike, so that those with the same x pack it once.
      const int64_t rows = packed_side(deepest(same_rows), ProductRound::kBlockRows);
      for (int64_t row = 0; row < at->sum.rows; row += rows) {
        for (const Product& product : products_) {
          if (same_rows(product)) add_rows(product, row, rows, round);
        }
      }
    }
    round.run();
  }

 private:
  struct Product {
    ProductSum sum;
    ProductOperand x, y;
    bool begun;
  };

  template <class Which>
  int64_t deepest(const Which& which) const {
    int64_t depth = 1;
    for (const Product& product : products_) {
      if (which(product)) depth = std::max(depth, std::min(product.x.depth, kMostDepth));
    }
    return depth;
  }

  void add_rows(const Product& product, int64_t row, int64_t rows, ProductRound& round) const {
    const auto same_sum = [&](const Product& other) { return other.sum == product.sum; };
    // Of all with this sum, so that parts of it never overlap.
    const int64_t columns = packed_side(deepest(same_sum), ProductRound::kBlockColumns);
    for (int64_t place = 0; place < product.x.depth; place += kMostDepth) {
      const ProductOperand x = part_of(product.x, row, rows, place, kMostDepth);
      for (int64_t column = 0; column < product.sum.columns; column += columns) {
        const ProductOperand y = part_of(product.y, column, columns, place, kMostDepth);
        float* const at = product.sum.data + row * product.sum.row_stride + column;
        round.add({at, product.sum.row_stride, x.lines, y.lines}, x, y, product.begun || place > 0);
      }
    }
  }

  std::vector<Product> products_;
};

void add_products_host(at::TensorList sums, at::TensorList x, at::TensorList y, at::ArrayRef<double> scales,
                       at::IntArrayRef begun) {
  Products products;
  for (size_t i = 0; i < sums.size(); i++) {
    TORCH_CHECK(y[i].size(0) == x[i].size(1) && sums[i].size(0) == x[i].size(0) &&
                    sums[i].size(1) == y[i].size(1) && sums[i].stride(1) == 1 &&
                    sums[i].scalar_type() == at::kFloat,
                "builtin product: ", x[i].sizes(), " times ", y[i].sizes(), " into ", sums[i].sizes());
    if (!sums[i].is_meta()) products.add(sums[i], x[i], y[i], scales[i], begun[i] != 0);
  }
  products.compute();
}

}  // namespace

bool suits_builtin(const at::Tensor& x, const at::Tensor& y) {
  if (cpu_products() != CpuProducts::builtin || target_of(x.device()) != c10::kCPU) return false;
  const bool recorded = at::GradMode::is_enabled() && (x.requires_grad() || y.requires_grad());
  const bool typed =
      x.scalar_type() == at::kFloat && (y.scalar_type() == at::kFloat || y.scalar_type() == at::kBFloat16);
  return !recorded && typed && is_plain(x) && is_plain(y) && x.size(1) > 0 &&
         std::min(x.size(0), y.size(1)) >= kSmallestSide;
}

// An operator, so that LibTorch's profiler and our tests see these products like those of its libraries.
TORCH_LIBRARY_FRAGMENT(trainer, library) {
  library.def("add_products(Tensor(a!)[] sums, Tensor[] x, Tensor[] y, float[] scales, int[] begun) -> ()");
}
TORCH_LIBRARY_IMPL(trainer, CPU, library) { library.impl("add_products", add_products_host); }
TORCH_LIBRARY_IMPL(trainer, Meta, library) { library.impl("add_products", add_products_host); }

void add_builtin_products(const std::vector<SummedProduct>& products) {
  static const Operator<void(at::TensorList, at::TensorList, at::TensorList, at::ArrayRef<double>,
                             at::IntArrayRef)>
      op("trainer::add_products");
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
  op(sums, x, y, scales, begun);
}

}  // namespace trainer
