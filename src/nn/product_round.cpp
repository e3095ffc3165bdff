#include "nn/product_round.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <sys/mman.h>

#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Exception.h>

namespace trainer {
namespace {

// Measured on an AMD EPYC of family 25, model 1 (Zen 3).
constexpr int64_t kDepth = 320;                   // of a tile's panels at a time: 20 KB of y
constexpr int64_t kSerialOperations = 1'000'000;  // fewer are not worth waking threads
constexpr int64_t kPanelsAtOnce = 8;              // packed by a thread before it asks for more

struct Free {
  void operator()(float* p) const { std::free(p); }
};
using HugePages = std::unique_ptr<float, Free>;

// Returns kMemoryElements, allocated with the first call.
float* all_of(HugePages& memory) {
  if (!memory) {
    constexpr size_t page = 1 << 21, size = sizeof(float) * ProductRound::kMemoryElements;
    constexpr size_t whole = size / page * page;  // the rest is not worth another
    memory.reset(static_cast<float*>(std::aligned_alloc(page, whole + page)));
    TORCH_CHECK_WITH(OutOfMemoryError, memory != nullptr, "no memory for packed operands of products");
    madvise(memory.get(), whole, MADV_HUGEPAGE);
  }
  return memory.get();
}

thread_local HugePages of_x, of_y;

template <class T>
void pack_lines(const ProductOperand& operand, int64_t line, int64_t count, float* to) {
  const T* const from = static_cast<const T*>(operand.data) + line * operand.line_stride;
  if (operand.line_stride == 1) {
    pack_columns(from, operand.place_stride, count, operand.depth, operand.width, operand.scale, to);
  } else {
    pack_rows(from, operand.line_stride, count, operand.depth, operand.width, operand.scale, to);
  }
}

}  // namespace

void ProductOperand::pack(int64_t first, int64_t count, float* packed) const {
  const int64_t line = first * width, here = std::min(count * width, lines - line);
  float* const to = packed + line * depth;
  bf16 ? pack_lines<c10::BFloat16>(*this, line, here, to) : pack_lines<float>(*this, line, here, to);
}

ProductRound::ProductRound() : x_{all_of(of_x)}, y_{all_of(of_y)} {}

int64_t ProductRound::Memory::find(const ProductOperand& operand) {
  const auto found =
      std::ranges::find_if(entries, [&](const Entry& entry) { return entry.operand == operand; });
  if (found != entries.end()) return found - entries.begin();
  if (used + operand.packed_elements() > kMemoryElements) return -1;
  entries.push_back({operand, data + used});
  used += operand.packed_elements();
  return static_cast<int64_t>(entries.size()) - 1;
}

void ProductRound::add(const ProductSum& sum, const ProductOperand& x, const ProductOperand& y, bool begun) {
  int64_t x_at = x_.find(x);
  if (x_at < 0) {
    compute();
    x_.clear();
    x_at = x_.find(x);
  }
  int64_t y_at = y_.find(y);
  if (y_at < 0) {
    compute();
    y_at = y_.find(y);
  }
  const auto known = std::ranges::find(sums_, sum);
  terms_.push_back({static_cast<size_t>(known - sums_.begin()), x_at, y_at, begun});
  if (known == sums_.end()) sums_.push_back(sum);
}

void ProductRound::run() {
  compute();
  x_.clear();
}

// Leaves the packed x in its place: the next round may need it, with other weights.
void ProductRound::compute() {
  int64_t panels = 0, operations = 0, blocks = 0;
  for (const Memory* memory : {&x_, &y_}) {
    for (size_t i = memory->packed; i < memory->entries.size(); i++)
      panels += memory->entries[i].operand.panels();
  }
  for (const Term& term : terms_)
    operations += 2 * sums_[term.sum].rows * sums_[term.sum].columns *
                  x_.entries[static_cast<size_t>(term.x)].operand.depth;
  for (const ProductSum& sum : sums_)
    blocks += at::divup(sum.rows, kBlockRows) * at::divup(sum.columns, kBlockColumns);
  const bool serial = at::in_parallel_region() || operations < kSerialOperations;
  // Threads take work as they become free: other programs on the machine slow some of them down.
  std::atomic<int64_t> next_panel{0}, next_block{0};
// Of as many threads as LibTorch's operators have: OpenMP ends those that one team has less than the last.
#pragma omp parallel if (!serial)
  {
    for (int64_t first; (first = next_panel.fetch_add(kPanelsAtOnce)) < panels;) {
      pack_panels(first, std::min(kPanelsAtOnce, panels - first));
    }
#pragma omp barrier
    for (int64_t block; (block = next_block.fetch_add(1)) < blocks;) compute_block(block);
  }
  x_.packed = x_.entries.size();
  y_.clear();
  sums_.clear();
  terms_.clear();
}

// Panels of y come first.
void ProductRound::pack_panels(int64_t first, int64_t count) const {
  for (const Memory* memory : {&y_, &x_}) {
    for (size_t i = memory->packed; i < memory->entries.size() && count > 0; i++) {
      const Memory::Entry& entry = memory->entries[i];
      const int64_t here = std::min(count, entry.operand.panels() - first);
      if (here > 0) {
        entry.operand.pack(first, here, entry.packed);
        count -= here;
      }
      first = std::max(first - entry.operand.panels(), int64_t{0});
    }
  }
}

void ProductRound::compute_block(int64_t block) const {
  size_t index = 0;
  int64_t across = 0;
  for (;; index++) {
    across = at::divup(sums_[index].columns, kBlockColumns);
    const int64_t blocks = at::divup(sums_[index].rows, kBlockRows) * across;
    if (block < blocks) break;
    block -= blocks;
  }
  const ProductSum& sum = sums_[index];
  const int64_t first_row = block / across * kBlockRows, first_column = block % across * kBlockColumns;
  const int64_t end_row = std::min(first_row + kBlockRows, sum.rows);
  const int64_t end_column = std::min(first_column + kBlockColumns, sum.columns);
  for (const Term& term : terms_) {
    if (term.sum != index) continue;
    const int64_t depth = x_.entries[static_cast<size_t>(term.x)].operand.depth;
    const int64_t step = at::divup(at::divup(depth, at::divup(depth, kDepth)), 8) * 8;
    for (int64_t place = 0; place < depth; place += step) {
      for (int64_t column = first_column; column < end_column; column += kTileColumns)
        compute_column(sum, term, first_row, end_row, column, place, std::min(step, depth - place));
    }
  }
}

void ProductRound::compute_column(const ProductSum& sum, const Term& term, int64_t row, int64_t end_row,
                                  int64_t column, int64_t place, int64_t places) const {
  const Memory::Entry &x = x_.entries[static_cast<size_t>(term.x)],
                      &y = y_.entries[static_cast<size_t>(term.y)];
  const int64_t columns = std::min(kTileColumns, sum.columns - column), panel = x.operand.depth * kTileRows;
  const float* a = x.packed + row * x.operand.depth + place * kTileRows;
  const float* const b = y.packed + column * y.operand.depth + place * kTileColumns;
  float* to = sum.data + row * sum.row_stride + column;
  const bool begun = term.begun || place > 0;
  if (columns == kTileColumns) {
    const int64_t tiles = (end_row - row) / kTileRows;
    add_tiles(tiles, places, a, panel, b, to, sum.row_stride, begun);
    row += tiles * kTileRows, a += tiles * panel, to += tiles * kTileRows * sum.row_stride;
  }
  for (; row < end_row; row += kTileRows, a += panel, to += kTileRows * sum.row_stride) {
    alignas(32) float edge[kTileRows * kTileColumns];
    add_tiles(1, places, a, panel, b, edge, kTileColumns, /*add=*/false);
    for (int64_t i = 0; i < std::min(kTileRows, end_row - row); i++) {
      for (int64_t j = 0; j < columns; j++) {
        const float value = edge[i * kTileColumns + j];
        to[i * sum.row_stride + j] = begun ? to[i * sum.row_stride + j] + value : value;
      }
    }
  }
}

}  // namespace trainer
