#include "adapters/merged_tensor.h"

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/mappings.h"
#include "models/tensor_views.h"

namespace trainer {
namespace {

constexpr int64_t kPieceBytes = 4 << 20;  // in fp32

int64_t rows_of(const TensorView& view) { return view.shape.empty() ? 1 : view.shape[0]; }

int64_t columns_of(const TensorView& view) {
  int64_t columns = 1;
  for (size_t i = 1; i < view.shape.size(); i++) columns *= view.shape[i];
  return columns;
}

int64_t rows_a_piece(const TensorView& view, int64_t multiple) {
  const int64_t fitting = kPieceBytes / (4 * std::max<int64_t>(1, columns_of(view)));
  return std::max(multiple, fitting / multiple * multiple);
}

// Calls `use` with the first row and the number of rows of each piece.
template <class Use>
void in_pieces(const TensorView& view, int64_t multiple, Use use) {
  const int64_t step = rows_a_piece(view, multiple), count = rows_of(view);
  for (int64_t row = 0; row < count; row += step) use(row, std::min(step, count - row));
}

std::byte* row_bytes(const TensorView& view, int64_t row) {
  return view.data + row * columns_of(view) * static_cast<int64_t>(dtype_size(view.dtype));
}

at::Tensor stored_rows(const TensorView& view, int64_t row, int64_t rows) {
  const at::Tensor stored =
      at::from_blob(row_bytes(view, row), {rows, columns_of(view)}, at::dtype(scalar_type(view.dtype)));
  at::Tensor wide = stored.to(at::kFloat, false, /*copy=*/true);
  release_pages(row_bytes(view, row), static_cast<int64_t>(stored.nbytes()));
  return wide;
}

}  // namespace

// Rows of W plus the adapter's part, fp32 [rows, columns], before the magnitude is applied.
at::Tensor MergedTensor::piece(const WeightSource* source, int64_t row, int64_t rows) const {
  at::Tensor wide = source != nullptr ? source->rows(row, rows, at::kFloat) : stored_rows(base, row, rows);
  if (!a.defined()) return wide;
  if (embedding) return wide.addmm_(a.narrow(1, row, rows).t(), b.t(), 1, scale);
  return wide.addmm_(b.narrow(0, row, rows), a, 1, scale);
}

// An embedding's magnitudes divided by its column norms: all rows are needed before the first can be written.
at::Tensor MergedTensor::column_factors() const {
  at::Tensor squares = at::zeros({columns_of(base)}, at::kDouble);
  in_pieces(base, 1, [&](int64_t row, int64_t rows) {
    squares += piece(nullptr, row, rows).square_().sum(0, false, at::kDouble);
  });
  return magnitude / squares.sqrt().to(at::kFloat);
}

void MergedTensor::in_rows(int64_t multiple, const std::function<void(const at::Tensor&)>& use) const {
  const at::NoGradGuard no_grad;
  const at::Tensor columns = embedding && magnitude.defined() ? column_factors() : at::Tensor();
  const std::shared_ptr<const WeightSource> source = quantised ? quantised() : nullptr;
  in_pieces(base, multiple, [&](int64_t row, int64_t rows) {
    at::Tensor sum = piece(source.get(), row, rows);
    if (added.defined()) sum.add_(added.narrow(0, row, rows).unsqueeze(1));
    if (columns.defined()) {
      sum.mul_(columns);
    } else if (magnitude.defined()) {
      const at::Tensor norm = at::linalg_vector_norm(sum, 2, {1});
      sum.mul_((magnitude.narrow(0, row, rows) / norm).unsqueeze(1));
    }
    use(sum);
  });
  if (quantised) release_pages(base.data, static_cast<int64_t>(base.nbytes));
}

void MergedTensor::write(std::ostream& out, const std::string& name) const {
  if (dtype == base.dtype && !is_changed() && !quantised) {
    in_pieces(base, 1, [&](int64_t row, int64_t rows) {
      const int64_t bytes = rows * columns_of(base) * static_cast<int64_t>(dtype_size(base.dtype));
      out.write(reinterpret_cast<const char*>(row_bytes(base, row)), bytes);
      release_pages(row_bytes(base, row), bytes);
    });
    return;
  }
  in_rows(1, [&](const at::Tensor& rows) {
    const at::Tensor rounded = rows.to(scalar_type(dtype));
    if (dtype == Dtype::f16) require_fp16_range(rows, name);
    out.write(static_cast<const char*>(rounded.const_data_ptr()),
              static_cast<std::streamsize>(rounded.nbytes()));
  });
}

std::shared_ptr<const WeightSource> MergedTensor::in_format(const WeightFormat& format,
                                                            const std::string& name,
                                                            bool double_quant) const {
  if (quantised && !is_changed()) {
    if (auto source = quantised(); source->format() == &format && format.is_written_as_is(*source))
      return source;
  }
  const auto quantiser = format.quantiser(name, base.shape, scalar_type(dtype), double_quant);
  in_rows(format.block() / std::gcd(format.block(), columns_of(base)), [&](const at::Tensor& rows) {
    if (dtype == Dtype::f16) require_fp16_range(rows, name);
    quantiser->add(rows.to(scalar_type(dtype)));
  });
  return quantiser->finish();
}

void require_fp16_range(const at::Tensor& values, const std::string& name) {
  const float largest = values.numel() == 0 ? 0.0f : values.abs().max().item<float>();
  if (largest < 65520.0f) return;  // everything below is rounded to 65504 at most
  throw FormatError(concat("tensor '", name, "' has a value of magnitude ", largest,
                           ", beyond the range of fp16 (65504); export it as bf16 or fp32"));
}

}  // namespace trainer
