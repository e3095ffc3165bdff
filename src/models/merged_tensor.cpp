#include "models/merged_tensor.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "trainer/base/release_pages.h"
#include "trainer/models/tensor_views.h"

namespace trainer {
namespace {

constexpr int64_t kPieceBytes = 4 << 20;  // in fp32

int64_t rows_of(const TensorView& view) { return view.shape.empty() ? 1 : view.shape[0]; }

int64_t columns_of(const TensorView& view) {
  int64_t columns = 1;
  for (size_t i = 1; i < view.shape.size(); i++) columns *= view.shape[i];
  return columns;
}

int64_t rows_a_piece(const TensorView& view) {
  return std::max<int64_t>(1, kPieceBytes / (4 * std::max<int64_t>(1, columns_of(view))));
}

// Calls `use` with the first row and the number of rows of each piece.
template <class Use>
void in_pieces(const TensorView& view, Use use) {
  const int64_t step = rows_a_piece(view), count = rows_of(view);
  for (int64_t row = 0; row < count; row += step) use(row, std::min(step, count - row));
}

std::byte* row_bytes(const TensorView& view, int64_t row) {
  return view.data + row * columns_of(view) * static_cast<int64_t>(dtype_size(view.dtype));
}

}  // namespace

// Rows of W, with the adapter's part, fp32 [rows, columns]; without the magnitude.
at::Tensor MergedTensor::piece(int64_t row, int64_t rows) const {
  const at::Tensor stored =
      at::from_blob(row_bytes(base, row), {rows, columns_of(base)}, at::dtype(scalar_type(base.dtype)));
  at::Tensor wide = stored.to(at::kFloat, false, /*copy=*/true);
  release_pages(row_bytes(base, row), static_cast<int64_t>(stored.nbytes()));
  if (!a.defined()) return wide;
  if (embedding) return wide.addmm_(a.narrow(1, row, rows).t(), b.t(), 1, scale);
  return wide.addmm_(b.narrow(0, row, rows), a, 1, scale);
}

// An embedding's magnitudes over its column norms: needs all rows before the first can be written.
at::Tensor MergedTensor::column_factors() const {
  at::Tensor squares = at::zeros({columns_of(base)}, at::kDouble);
  in_pieces(base, [&](int64_t row, int64_t rows) {
    squares += piece(row, rows).square_().sum(0, false, at::kDouble);
  });
  return magnitude / squares.sqrt().to(at::kFloat);
}

void MergedTensor::write(std::ostream& out) const {
  const at::NoGradGuard no_grad;
  const bool as_it_is = dtype == base.dtype && !a.defined() && !added.defined();
  const at::Tensor columns = embedding && magnitude.defined() ? column_factors() : at::Tensor();
  in_pieces(base, [&](int64_t row, int64_t rows) {
    const int64_t bytes = rows * columns_of(base) * static_cast<int64_t>(dtype_size(base.dtype));
    if (as_it_is) {
      out.write(reinterpret_cast<const char*>(row_bytes(base, row)), bytes);
      release_pages(row_bytes(base, row), bytes);
      return;
    }
    at::Tensor sum = piece(row, rows);
    if (added.defined()) sum.add_(added.narrow(0, row, rows).unsqueeze(1));
    if (columns.defined()) {
      sum.mul_(columns);
    } else if (magnitude.defined()) {
      const at::Tensor norm = at::linalg_vector_norm(sum, 2, {1});
      sum.mul_((magnitude.narrow(0, row, rows) / norm).unsqueeze(1));
    }
    const at::Tensor rounded = sum.to(scalar_type(dtype));
    out.write(static_cast<const char*>(rounded.const_data_ptr()),
              static_cast<std::streamsize>(rounded.nbytes()));
  });
}

}  // namespace trainer
