// Matrices that lie next to each other in one tensor, so that one product takes them together.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace trainer {

// Returns [all rows, columns] of matrices [rows, columns] that lie below each other, without a copy;
// undefined if they do not.
at::Tensor rows_together(const std::vector<at::Tensor>& matrices);
// The same of matrices that are columns of one, next to each other: [rows, all columns].
at::Tensor columns_together(const std::vector<at::Tensor>& matrices);

}  // namespace trainer
