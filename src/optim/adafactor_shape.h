#pragma once

#include <algorithm>
#include <cstdint>

#include <ATen/ATen.h>

#include "trainer/optim/adafactor.h"

namespace trainer {

// A tensor as matrices whose second moment is factored, or else as one row.
struct AdafactorShape {
  explicit AdafactorShape(const AdafactorTensors& t) : factored(t.column.defined()) {
    const at::Tensor& weight = t.weight;
    columns = factored ? weight.size(-1) : weight.numel();
    rows = factored ? weight.size(-2) : 1;
    matrices = weight.numel() / std::max<int64_t>(rows * columns, 1);
  }
  bool factored;
  int64_t matrices, rows, columns;
};

// The factors of an update in fp32.
struct AdafactorCoefficients {
  explicit AdafactorCoefficients(const AdafactorUpdate& u)
      : learning_rate(static_cast<float>(u.learning_rate)),
        keep(static_cast<float>(u.keep)),
        take(static_cast<float>(1.0 - u.keep)),
        epsilon(static_cast<float>(u.epsilon)),
        least_scale(static_cast<float>(u.least_scale)),
        clip_threshold(static_cast<float>(u.clip_threshold)),
        beta1(static_cast<float>(u.beta1)),
        one_minus_beta1(static_cast<float>(1.0 - u.beta1)),
        weight_decay(static_cast<float>(u.weight_decay)),
        scale_parameter(u.scale_parameter ? 1 : 0) {}
  float learning_rate, keep, take, epsilon, least_scale, clip_threshold, beta1, one_minus_beta1, weight_decay;
  int32_t scale_parameter;
};

// The division of a tensor into panels: rows of one matrix or, without factors, elements.
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
