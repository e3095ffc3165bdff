#include "gemm/product_round.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <sys/mman.h>

#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Exception.h>

#include "gemm/product_packing.h"

namespace trainer {
namespace {

// Measured on an AMD EPYC of family 25, model 1 (Zen 3).
constexpr int64_t kSerialOperations = 1'000'000;  // fewer are not worth waking threads
constexpr int64_t kPanelsAtOnce = 8;              // packed by a thread before it asks for more

struct Free {
  void operator()(float* p) const { std::free(p); }
};
using HugePages = std::unique_ptr<float, Free>;

// Returns kMemoryWords, allocated with the first call.
float* all_of(HugePages& memory) {
  if (!memory) {
    constexpr size_t page = 1 << 21, size = sizeof(float) * ProductRound::kMemoryWords;
    constexpr size_t whole = size / page * page;  // the rest is not worth another
    memory.reset(static_cast<float*>(std::aligned_alloc(page, whole + page)));
    TORCH_CHECK_WITH(OutOfMemoryError, memory != nullptr, "no memory for packed operands of products");
    madvise(memory.get(), whole, MADV_HUGEPAGE);
  }
  return memory.get();
}

thread_local HugePages of_x, of_y;

}  // namespace

bool ProductOperand::is_plain() const {
  if (!tiles->reads_plain || bf16 != tiles->bf16) return false;
  if (side == OperandSide::y) return !bf16 && line_stride == 1 && lines % tiles->columns == 0;
  const bool whole_words = !bf16 || (depth % 2 == 0 && line_stride % 2 == 0);
  return place_stride == 1 && line_stride > 2 && whole_words;
}

void ProductOperand::pack(int64_t first, int64_t count, float* packed) const {
  const int64_t line = first * width(), here = std::min(count * width(), lines - line);
  const PackedWords kind = tiles->bf16 ? PackedWords::pairs : bf16 ? PackedWords::widened : PackedWords::fp32;
  const void* const from = static_cast<const char*>(data) + line * line_stride * (bf16 ? 2 : 4);
  float* const to = packed + line * line_words();
  if (in_rows()) {
    const auto pack = line_stride == 1 ? pack_columns_in_lines : pack_rows_in_lines;
    pack(static_cast<const c10::BFloat16*>(from), line_stride == 1 ? place_stride : line_stride, here, depth,
         to);
  } else if (line_stride == 1) {
    pack_columns(kind, from, place_stride, here, depth, width(), to);
  } else {
    pack_rows(kind, from, line_stride, here, depth, width(), to);
  }
}

ProductRound::ProductRound() : x_{all_of(of_x)}, y_{all_of(of_y)} {}

bool ProductRound::Memory::has(const ProductOperand& operand) const {
  return std::ranges::any_of(entries, [&](const Entry& entry) { return entry.operand == operand; });
}

const float* ProductRound::Memory::find(const ProductOperand& operand) {
  const auto found =
      std::ranges::find_if(entries, [&](const Entry& entry) { return entry.operand == operand; });
  if (found != entries.end()) return found->packed;
  if (used + operand.packed_words() > kMemoryWords) return nullptr;
  entries.push_back({operand, data + used});
  used += operand.packed_words();
  return entries.back().packed;
}

// Rows that a single column of tiles reads once are not packed for it alone; rows for tiles that read rows
// are never packed.
ProductPanels ProductRound::panels_of_x(const ProductOperand& x, int64_t columns) {
  const ProductTiles& tiles = *x.tiles;
  if (x.is_plain() && (tiles.x_in_rows || (columns <= tiles.columns && !x_.has(x)))) {
    const int64_t row = x.line_stride / (tiles.bf16 ? 2 : 1);
    return {static_cast<const float*>(x.data), tiles.rows * row, 1, row};
  }
  const float* packed = x_.find(x);
  if (!packed) {
    compute();
    x_.clear();
    packed = x_.find(x);
    TORCH_INTERNAL_ASSERT(packed, "rows of a product have no room");
  }
  return trainer::panels_of_x(tiles, packed, x.line_words());
}

ProductPanels ProductRound::panels_of_y(const ProductOperand& y) {
  const ProductTiles& tiles = *y.tiles;
  if (y.is_plain()) return {static_cast<const float*>(y.data), tiles.columns, y.place_stride, 1};
  const float* packed = y_.find(y);
  if (!packed) {
    compute();
    packed = y_.find(y);
    TORCH_INTERNAL_ASSERT(packed, "columns of a product have no room");
  }
  return {packed, tiles.columns * y.words(), tiles.columns, 1};
}

void ProductRound::add(const ProductSum& sum, const ProductOperand& x, const ProductOperand& y, float scale,
                       bool begun) {
  const ProductPanels of_x = panels_of_x(x, sum.columns), of_y = panels_of_y(y);
  const auto known = std::ranges::find(sums_, sum);
  terms_.push_back(
      {static_cast<size_t>(known - sums_.begin()), of_x, of_y, x.tiles, x.words(), scale, begun});
  if (known == sums_.end()) sums_.push_back(sum);
}

void ProductRound::run() {
  compute();
  x_.clear();
}

// Leaves the packed x in its place: the next round may need it, with other weights.
void ProductRound::compute() {
  int64_t panels = 0, operations = 0;
  for (const Memory* memory : {&x_, &y_}) {
    for (size_t i = memory->packed; i < memory->entries.size(); i++)
      panels += memory->entries[i].operand.panels();
  }
  for (const Term& term : terms_)
    operations += 2 * sums_[term.sum].rows * sums_[term.sum].columns * term.words;
  const int64_t block_rows = rows_of_blocks(), blocks = blocks_of(block_rows);
  const bool serial = at::in_parallel_region() || operations < kSerialOperations;
  // Threads take work as they become free: other programs on the machine slow some of them down.
  std::atomic<int64_t> next_panel{0}, next_block{0};
// The team is as large as LibTorch's, because OpenMP ends threads that a smaller team leaves out.
#pragma omp parallel if (!serial)
  {
    for (int64_t first; (first = next_panel.fetch_add(kPanelsAtOnce)) < panels;) {
      pack_panels(first, std::min(kPanelsAtOnce, panels - first));
    }
#pragma omp barrier
    for (int64_t block; (block = next_block.fetch_add(1)) < blocks;) compute_block(block, block_rows);
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

int64_t ProductRound::blocks_of(int64_t rows) const {
  int64_t blocks = 0;
  for (const ProductSum& sum : sums_)
    blocks += at::divup(sum.rows, rows) * at::divup(sum.columns, kBlockColumns);
  return blocks;
}

// Long blocks read y less often; there are enough of them for threads to end together.
int64_t ProductRound::rows_of_blocks() const {
  constexpr int64_t blocks_of_thread = 4;
  const bool fast = std::ranges::any_of(terms_, [](const Term& term) { return term.tiles->long_blocks; });
  return fast && blocks_of(kMostBlockRows) >= blocks_of_thread * at::get_num_threads() ? kMostBlockRows
                                                                                       : kBlockRows;
}

void ProductRound::compute_block(int64_t block, int64_t block_rows) const {
  size_t index = 0;
  int64_t across = 0;
  for (;; index++) {
    across = at::divup(sums_[index].columns, kBlockColumns);
    const int64_t blocks = at::divup(sums_[index].rows, block_rows) * across;
    if (block < blocks) break;
    block -= blocks;
  }
  const ProductSum& sum = sums_[index];
  const int64_t row = block / across * block_rows, column = block % across * kBlockColumns;
  const Block part{row, column, std::min(block_rows, sum.rows - row),
                   std::min(kBlockColumns, sum.columns - column)};
  for (const Term& term : terms_) {
    if (term.sum != index) continue;
    if (sum.bf16) {
      add_and_round(sum, term, part);
    } else {
      float* const c = static_cast<float*>(sum.data) + row * sum.row_stride + column;
      add(term, part, {part.rows, part.columns, c, sum.row_stride});
    }
  }
}

// As if the product were computed alone, so that the bits do not depend on what shares the round.
void ProductRound::add_and_round(const ProductSum& sum, const Term& term, const Block& block) {
  alignas(64) float wide[kMostBlockRows * kBlockColumns];
  auto* const to = static_cast<c10::BFloat16*>(sum.data) + block.row * sum.row_stride + block.column;
  // Rows that are in no cache are on their way while the product is computed.
  for (int64_t row = 0; row < block.rows; row++) {
    for (int64_t column = 0; column < block.columns; column += 32)
      __builtin_prefetch(to + row * sum.row_stride + column, /*rw=*/1, /*locality=*/2);
  }
  if (term.begun) widen_rows(to, sum.row_stride, block.rows, block.columns, wide, kBlockColumns);
  add(term, block, {block.rows, block.columns, wide, kBlockColumns, to, sum.row_stride});
}

void ProductRound::add(const Term& term, const Block& block, const ProductPlace& place) {
  const ProductTiles& tiles = *term.tiles;
  ProductPanels x = term.x, y = term.y;
  x.data += block.row / tiles.rows * x.stride;
  y.data += block.column / tiles.columns * y.stride;
  multiply_panels(tiles, x, y, term.words, place, term.scale, term.begun);
}

}  // namespace trainer
