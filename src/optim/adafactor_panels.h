#pragma once

#include <algorithm>

#include <ATen/ATen.h>

#include "optim/adafactor_shape.h"

namespace trainer {

// How a tensor is cut: rows of one matrix or, without factors, elements.
struct AdafactorPanels {
  explicit AdafactorPanels(const AdafactorShape& shape)
      : length(shape.factored ? shape.rows : shape.columns),
        size(shape.factored ? std::max({int64_t{64}, (shape.rows + 63) / 64, (1 << 14) / shape.columns})
                            : int64_t{1} << 15),
        of_matrix((length + size - 1) / size),
        count(of_matrix * shape.matrices) {}
  int64_t matrix(int64_t panel) const { return panel / of_matrix; }
  int64_t first(int64_t panel) const { return panel % of_matrix * size; }
  int64_t end(int64_t panel) const { return std::min(first(panel) + size, length); }
  int64_t length, size, of_matrix, count;
};

// Temporary memory, all of it.
struct AdafactorScratch {
  AdafactorScratch(const AdafactorShape& shape, const AdafactorPanels& panels, const at::Tensor& like)
      : rows(shape.factored ? shape.matrices * shape.rows : 0),
        columns(shape.factored ? shape.matrices * shape.columns : 0),
        floats(at::empty({2 * rows + 2 * columns + (shape.factored ? panels.count * shape.columns : 0)},
                         like.options().dtype(at::kFloat))),
        sums(at::empty({2 * panels.count}, like.options().dtype(at::kDouble))) {}
  int64_t rows, columns;
  at::Tensor floats, sums;
};

}  // namespace trainer
