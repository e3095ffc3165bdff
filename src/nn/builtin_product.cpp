// The order of Goto and van de Geijn (Anatomy of High-Performance Matrix Multiplication, 2008): operands are
// packed into panels, a block of x stays in the second-level cache and a panel of y in the first-level one.
#include "nn/builtin_product.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <sys/mman.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include "trainer/device/target_device.h"
#include "trainer/nn/cpu_products.h"

#include "nn/operators.h"
#include "nn/product_tiles.h"

namespace trainer {
namespace {

// Measured on an AMD EPYC of family 25, model 1 (Zen 3).
constexpr int64_t kDepth = 320;                   // of a tile's panels at a time: 20 KB of y
constexpr int64_t kBlockRows = 96;                // of x
constexpr int64_t kBlockColumns = 128;            // of y
constexpr int64_t kMostDepth = 2048;              // packed at once
constexpr int64_t kPackedElements = 1 << 20;      // of each operand
constexpr int64_t kSerialOperations = 1'000'000;  // fewer are not worth waking threads
constexpr int64_t kPanelsAtOnce = 4;              // packed by a thread before it asks for more
constexpr int64_t kSmallestSide = 8;

constexpr int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Element (i, j) is at data + i * row_stride + j * column_stride; one of the strides is 1.
struct Operand {
  explicit Operand(const at::Tensor& x)
      : data(x.const_data_ptr()),
        row_stride(x.stride(0)),
        column_stride(x.stride(1)),
        bf16(x.scalar_type() == at::kBFloat16) {}

  template <class T>
  const T* at(int64_t row, int64_t column) const {
    return static_cast<const T*>(data) + row * row_stride + column * column_stride;
  }

  // The part from this element on.
  Operand from(int64_t row, int64_t column) const {
    Operand part = *this;
    part.data = bf16 ? static_cast<const void*>(at<c10::BFloat16>(row, column)) : at<float>(row, column);
    return part;
  }

  const void* data;
  int64_t row_stride, column_stride;
  bool bf16;
};

// The memory of packed operands, in huge pages. Each thread that starts products has its own.
class PackedMemory {
 public:
  float* of_x() { return get(x_); }
  float* of_y() { return get(y_); }

 private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  using Memory = std::unique_ptr<float, Free>;

  static float* get(Memory& memory) {
    if (!memory) {
      constexpr size_t huge_page = 1 << 21;
      // A panel more than kPackedElements, because sides are rounded up.
      const size_t bytes = sizeof(float) * (kPackedElements + kTileColumns * kMostDepth);
      const size_t whole = (bytes + huge_page - 1) / huge_page * huge_page;
      memory.reset(static_cast<float*>(std::aligned_alloc(huge_page, whole)));
      TORCH_CHECK_WITH(OutOfMemoryError, memory != nullptr, "no memory for packed operands of products");
      madvise(memory.get(), whole, MADV_HUGEPAGE);
    }
    return memory.get();
  }

  Memory x_, y_;
};

// A part of the product whose operands are packed as a whole.
struct Part {
  Operand x, y;
  float scale;
  int64_t rows, columns, depth;
  float* sum;
  int64_t sum_stride;
  bool add;
  float *packed_x, *packed_y;

  int64_t panels_of_x() const { return divided_up(rows, kTileRows); }
  int64_t panels_of_y() const { return divided_up(columns, kTileColumns); }

  template <class T>
  void pack_y_of(int64_t panel) const {
    const int64_t column = panel * kTileColumns, count = columns - column;
    const T* from = y.at<T>(0, column);
    float* to = packed_y + column * depth;
    if (y.column_stride == 1) {
      pack_columns(from, y.row_stride, count, depth, kTileColumns, scale, to);
    } else {
      pack_rows(from, y.column_stride, count, depth, kTileColumns, scale, to);
    }
  }

  void pack_x_of(int64_t panel) const {
    const int64_t row = panel * kTileRows, count = rows - row;
    const float* from = x.at<float>(row, 0);
    float* to = packed_x + row * depth;
    if (x.row_stride == 1) {
      pack_columns(from, x.column_stride, count, depth, kTileRows, 1.0f, to);
    } else {
      pack_rows(from, x.row_stride, count, depth, kTileRows, 1.0f, to);
    }
  }

  // Panels of y come first.
  void pack(int64_t panel) const {
    if (panel < panels_of_y()) return y.bf16 ? pack_y_of<c10::BFloat16>(panel) : pack_y_of<float>(panel);
    pack_x_of(panel - panels_of_y());
  }

  void compute_block(int64_t first_row, int64_t first_column) const {
    const int64_t end_row = std::min(first_row + kBlockRows, rows);
    const int64_t end_column = std::min(first_column + kBlockColumns, columns);
    const int64_t step = divided_up(divided_up(depth, divided_up(depth, kDepth)), 8) * 8;
    for (int64_t place = 0; place < depth; place += step) {
      for (int64_t column = first_column; column < end_column; column += kTileColumns) {
        for (int64_t row = first_row; row < end_row; row += kTileRows)
          compute_tile(row, column, place, std::min(step, depth - place));
      }
    }
  }

  void compute_tile(int64_t row, int64_t column, int64_t place, int64_t places) const {
    const int64_t rows_here = std::min(kTileRows, rows - row);
    const int64_t columns_here = std::min(kTileColumns, columns - column);
    const bool whole = rows_here == kTileRows && columns_here == kTileColumns, begun = add || place > 0;
    float* to = sum + row * sum_stride + column;
    alignas(32) float edge[kTileRows * kTileColumns];
    float* tile = whole ? to : edge;
    const int64_t stride = whole ? sum_stride : kTileColumns;
    const float* b = packed_y + column * depth + place * kTileColumns;
    const float* a = packed_x + row * depth + place * kTileRows;
    add_tile(places, a, b, tile, stride, whole && begun);
    if (whole) return;
    for (int64_t i = 0; i < rows_here; i++) {
      for (int64_t j = 0; j < columns_here; j++) {
        const float value = edge[i * kTileColumns + j];
        to[i * sum_stride + j] = begun ? to[i * sum_stride + j] + value : value;
      }
    }
  }
};

// Threads take work as they become free: other programs on the machine slow some of them down.
void compute(const Part& part, bool pack_x) {
  const int64_t panels = part.panels_of_y() + (pack_x ? part.panels_of_x() : 0);
  const int64_t across = divided_up(part.columns, kBlockColumns);
  const int64_t blocks = divided_up(part.rows, kBlockRows) * across;
  const bool serial =
      at::in_parallel_region() || 2 * part.rows * part.columns * part.depth < kSerialOperations;
  std::atomic<int64_t> next_panel{0}, next_block{0};
// Of as many threads as LibTorch's operators have: OpenMP ends those that one team has less than the last.
#pragma omp parallel if (!serial)
  {
    for (int64_t first; (first = next_panel.fetch_add(kPanelsAtOnce)) < panels;) {
      for (int64_t panel = first; panel < std::min(first + kPanelsAtOnce, panels); panel++) part.pack(panel);
    }
#pragma omp barrier
    for (int64_t block; (block = next_block.fetch_add(1)) < blocks;)
      part.compute_block(block / across * kBlockRows, block % across * kBlockColumns);
  }
}

// The multiple of `unit` of which, with `depth`, kPackedElements can be packed.
int64_t packed_side(int64_t depth, int64_t unit) {
  return std::max(kPackedElements / depth / unit, int64_t{1}) * unit;
}

bool is_plain(const at::Tensor& x) {
  return x.layout() == at::kStrided && x.dim() == 2 && (x.stride(0) == 1 || x.stride(1) == 1);
}

void add_product_host(const at::Tensor& sum, const at::Tensor& x, const at::Tensor& y, double scale,
                      bool begun) {
  const int64_t m = x.size(0), k = x.size(1), n = y.size(1);
  TORCH_CHECK(y.size(0) == k && sum.size(0) == m && sum.size(1) == n && sum.stride(1) == 1 &&
                  sum.scalar_type() == at::kFloat,
              "builtin product: ", x.sizes(), " times ", y.sizes(), " into ", sum.sizes());
  if (sum.is_meta()) return;
  static thread_local PackedMemory memory;
  const Operand of_x(x), of_y(y);
  for (int64_t place = 0; place < k; place += kMostDepth) {
    const int64_t depth = std::min(kMostDepth, k - place);
    const int64_t rows = packed_side(depth, kBlockRows), columns = packed_side(depth, kBlockColumns);
    for (int64_t row = 0; row < m; row += rows) {
      for (int64_t column = 0; column < n; column += columns) {
        compute({of_x.from(row, place), of_y.from(place, column), static_cast<float>(scale),
                 std::min(rows, m - row), std::min(columns, n - column), depth,
                 sum.mutable_data_ptr<float>() + row * sum.stride(0) + column, sum.stride(0),
                 begun || place > 0, memory.of_x(), memory.of_y()},
                /*pack_x=*/column == 0);
      }
    }
  }
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
  library.def("add_product(Tensor(a!) sum, Tensor x, Tensor y, float scale, bool begun) -> ()");
}
TORCH_LIBRARY_IMPL(trainer, CPU, library) { library.impl("add_product", add_product_host); }
TORCH_LIBRARY_IMPL(trainer, Meta, library) { library.impl("add_product", add_product_host); }

void add_builtin_product(const at::Tensor& sum, const at::Tensor& x, const at::Tensor& y, double scale,
                         bool begun) {
  static const Operator<void(const at::Tensor&, const at::Tensor&, const at::Tensor&, double, bool)> op(
      "trainer::add_product");
  op(sum, x, y, scale, begun);
}

}  // namespace trainer
