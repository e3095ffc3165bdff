#include "gemm/product_workspace.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <omp.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "device/target_device.h"

namespace trainer {
namespace {

int64_t up_to_16(int64_t n) { return (n + 15) / 16 * 16; }

}  // namespace

const ProductTiles* attention_tiles(const at::Tensor& x) {
  if (target_of(x.device()) != c10::kCPU) return nullptr;
  return x.scalar_type() == at::kBFloat16 ? bf16_tiles()
         : x.scalar_type() == at::kFloat  ? fp32_tiles()
                                          : nullptr;
}

MatrixRows::MatrixRows(const at::Tensor& x, int64_t sample, int64_t head, int64_t first, int64_t count)
    : data(static_cast<char*>(const_cast<void*>(x.const_data_ptr())) +
           (sample * x.stride(0) + head * x.stride(1) + first * x.stride(2)) * x.element_size()),
      stride(x.stride(2)),
      rows(count),
      columns(x.size(3)),
      bf16(x.scalar_type() == at::kBFloat16) {}

// Whole panels of every kind of tiles have up to 31 lines more.
int64_t ProductWorkspace::words(int64_t rows, int64_t columns) {
  return (up_to_16(rows) + 16) * (up_to_16(columns) + 16);
}

float* ProductWorkspace::take(int64_t words) {
  float* const out = at_;
  at_ += up_to_16(words);
  return out;
}

float* ProductWorkspace::take_zeros(int64_t words) {
  float* const out = take(words);
  std::fill_n(out, words, 0.0f);
  return out;
}

PackedLines ProductWorkspace::x_of(const MatrixRows& m) {
  if (tiles_.x_in_rows) {
    const bool plain = m.stride % 2 == 0 && m.columns % 2 == 0;
    if (plain) return {reinterpret_cast<const float*>(m.data), words_of(m.columns), m.stride / 2};
    return pack_in_lines(pack_rows_in_lines, m, m.rows, m.columns);
  }
  return pack(pack_rows, m, m.rows, m.columns, tiles_.rows);
}
PackedLines ProductWorkspace::x_of_transposed(const MatrixRows& m) {
  if (tiles_.x_in_rows) return pack_in_lines(pack_columns_in_lines, m, m.columns, m.rows);
  return pack(pack_columns, m, m.columns, m.rows, tiles_.rows);
}
PackedLines ProductWorkspace::y_of(const MatrixRows& m) {
  return pack(pack_columns, m, m.columns, m.rows, tiles_.columns);
}
PackedLines ProductWorkspace::y_of_transposed(const MatrixRows& m) {
  return pack(pack_rows, m, m.rows, m.columns, tiles_.columns);
}

void ProductWorkspace::multiply(const PackedLines& x, const PackedLines& y, int64_t places,
                                const WideRows& sum, double scale, bool add) const {
  if (places == 0 && !add) {
    for (int64_t row = 0; row < sum.rows; row++) std::fill_n(sum.data + row * sum.stride, sum.columns, 0.0f);
    return;
  }
  multiply_panels(tiles_, panels_of_x(tiles_, x.data, tiles_.x_in_rows ? x.row : x.words),
                  {y.data, tiles_.columns * y.words, tiles_.columns, 1}, words_of(places),
                  {sum.rows, sum.columns, sum.data, sum.stride}, static_cast<float>(scale), add);
}

MatrixRows ProductWorkspace::operand(const WideRows& from) {
  if (!tiles_.bf16) return {from.data, from.stride, from.rows, from.columns, false};
  auto* const rounded = reinterpret_cast<c10::BFloat16*>(take(from.rows * from.stride / 2));
  tiles_.round(from.data, from.stride, from.rows, from.columns, rounded, from.stride);
  return {rounded, from.stride, from.rows, from.columns, true};
}

void ProductWorkspace::put(const float* from, const MatrixRows& to) const {
  if (to.bf16) {
    tiles_.round(from, to.columns, to.rows, to.columns, reinterpret_cast<c10::BFloat16*>(to.data), to.stride);
  } else {
    for (int64_t row = 0; row < to.rows; row++) {
      std::memcpy(to.data + row * to.stride * 4, from + row * to.columns,
                  static_cast<size_t>(to.columns) * 4);
    }
  }
}

float* ProductWorkspace::wide(const MatrixRows& from) {
  float* const to = take(from.rows * from.columns);
  if (from.bf16) {
    widen_rows(reinterpret_cast<const c10::BFloat16*>(from.data), from.stride, from.rows, from.columns, to,
               from.columns);
  } else {
    for (int64_t row = 0; row < from.rows; row++) {
      std::memcpy(to + row * from.columns, from.data + row * from.stride * 4,
                  static_cast<size_t>(from.columns) * 4);
    }
  }
  return to;
}

PackedLines ProductWorkspace::pack(Pack with, const MatrixRows& m, int64_t lines, int64_t places,
                                   int64_t width) {
  const int64_t words = words_of(places);
  float* const to = take((lines + width - 1) / width * width * words);
  with(tiles_.bf16 ? PackedWords::pairs : PackedWords::fp32, m.data, m.stride, lines, places, width, to);
  return {to, words};
}

PackedLines ProductWorkspace::pack_in_lines(PackInLines with, const MatrixRows& m, int64_t lines,
                                            int64_t places) {
  const int64_t words = words_of(places), row = line_of_words(words);
  float* const to = take(lines * row);
  with(reinterpret_cast<const c10::BFloat16*>(m.data), m.stride, lines, places, to);
  return {to, words, row};
}

ThreadWorkspaces::ThreadWorkspaces(const ProductTiles& tiles, int64_t words, const at::TensorOptions& options)
    : tiles_(tiles), memory_(at::empty({at::get_num_threads(), words}, options.dtype(at::kFloat))) {}

void ThreadWorkspaces::for_tasks(int64_t tasks,
                                 const std::function<void(int64_t, ProductWorkspace&)>& with) const {
  if (memory_.is_meta()) return;
  float* const memory = memory_.data_ptr<float>();
  const int threads = static_cast<int>(memory_.size(0));
  std::atomic<int64_t> next{0};
#pragma omp parallel num_threads(threads)
  {
    float* const own = memory + omp_get_thread_num() * memory_.size(1);
    for (int64_t task; (task = next.fetch_add(1)) < tasks;) {
      ProductWorkspace workspace(tiles_, own);
      with(task, workspace);
    }
  }
}

}  // namespace trainer
