// The update with LibTorch's operators, for GPUs that cannot use the kernels. Nothing is read on the host.
#include <bit>

#include <ATen/ATen.h>

#include "optim/adafactor_shape.h"
#include "optim/stochastic_rounding.h"

namespace trainer {
namespace {

// Rows of one matrix, about a million elements. The sums depend on the size, so that it is always the same.
struct Piece {
  int64_t matrix, row, rows;
};
constexpr int64_t kPieceElements = 1 << 20;

int64_t rows_of_piece(const AdafactorShape& shape) {
  return std::max<int64_t>(1, kPieceElements / shape.columns);
}

// Calls body(piece) for the pieces from `done` elements on.
template <class Body>
void for_pieces(const AdafactorShape& shape, int64_t done, const Body& body) {
  const int64_t step = rows_of_piece(shape);
  int64_t row = done / shape.columns;
  while (row < shape.matrices * shape.rows) {
    const int64_t of_matrix = row % shape.rows, rows = std::min(step, shape.rows - of_matrix);
    body(Piece{row / shape.rows, of_matrix, rows});
    row += rows;
  }
}

// What is computed for a tensor before it is written. Tensors of the weight's shape are seen as
// [matrices, rows, columns].
class Factors {
 public:
  Factors(const AdafactorTensors& t, const at::Tensor& gradient_scale, const AdafactorUpdate& update,
          const AdafactorShape& shape)
      : t_(t), scale_(gradient_scale), c_(update), shape_(shape) {}

  AdafactorFactors all() const {
    AdafactorFactors f = shape_.factored ? factored() : unfactored();
    const double count = static_cast<double>(t_.weight.numel());
    const at::TensorOptions options = t_.row.options();
    at::Tensor of_update = at::zeros({}, options), of_weight = at::zeros({}, options);
    for_pieces(shape_, 0, [&](const Piece& piece) {
      of_update.add_(update_of(piece, gradient_of(piece), f).square_().sum());
      if (c_.scale_parameter != 0) of_weight.add_(weight_of(piece).square().sum());
    });
    const at::Tensor size = of_update.div_(count).sqrt_().div_(c_.clip_threshold).clamp_min_(1.0);
    at::Tensor rate = at::full({}, c_.learning_rate, options);
    if (c_.scale_parameter != 0) rate.mul_(of_weight.div_(count).sqrt_().clamp_min_(c_.least_scale));
    f.kept = rate.mul(-c_.weight_decay).add_(1.0);
    f.step = rate.div_(size);
    return f;
  }

  at::Tensor part(const at::Tensor& tensor, const Piece& piece) const {
    return tensor.view({shape_.matrices, shape_.rows, shape_.columns})
        .select(0, piece.matrix)
        .narrow(0, piece.row, piece.rows);
  }
  at::Tensor gradient_of(const Piece& piece) const {
    return part(t_.gradient, piece).to(at::kFloat, /*non_blocking=*/false, /*copy=*/true).mul_(scale_);
  }
  at::Tensor weight_of(const Piece& piece) const {
    return part(t_.master.defined() ? t_.master : t_.weight, piece).to(at::kFloat);
  }

  // The update before clipping and learning rate, in place of the gradient.
  at::Tensor update_of(const Piece& piece, at::Tensor gradient, const AdafactorFactors& f) const {
    if (!shape_.factored) return gradient.mul_(part(f.row_factor, piece));
    const at::Tensor rows = f.row_factor.view({shape_.matrices, shape_.rows, 1})
                                .select(0, piece.matrix)
                                .narrow(0, piece.row, piece.rows);
    return gradient.mul_(rows).mul_(
        f.column_factor.view({shape_.matrices, 1, shape_.columns}).select(0, piece.matrix));
  }

 private:
  at::Tensor new_moments(const at::Tensor& moments, at::Tensor mean_squares) const {
    return mean_squares.add_(c_.epsilon).mul_(c_.take).add_(moments.view_as(mean_squares), c_.keep);
  }

  AdafactorFactors factored() const {
    const at::TensorOptions options = t_.row.options();
    at::Tensor rows = at::zeros({shape_.matrices, shape_.rows}, options),
               columns = at::zeros({shape_.matrices, shape_.columns}, options);
    for_pieces(shape_, 0, [&](const Piece& piece) {
      const at::Tensor squares = gradient_of(piece).square_();
      rows.select(0, piece.matrix).narrow(0, piece.row, piece.rows).copy_(squares.sum(1));
      columns.select(0, piece.matrix).add_(squares.sum(0));
    });
    AdafactorFactors f;
    f.row = new_moments(t_.row, rows.div_(static_cast<double>(shape_.columns)));
    f.column = new_moments(t_.column, columns.div_(static_cast<double>(shape_.rows)));
    f.row_factor = f.row.div(f.row.mean(-1, /*keepdim=*/true)).rsqrt_();
    f.column_factor = f.column.rsqrt();
    return f;
  }

  AdafactorFactors unfactored() const {
    const at::Tensor gradient = t_.gradient.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    AdafactorFactors f;
    f.row = new_moments(t_.row, gradient.mul_(scale_).square_());
    f.row_factor = f.row.rsqrt();
    return f;
  }

  const AdafactorTensors& t_;
  const at::Tensor& scale_;
  AdafactorCoefficients c_;
  AdafactorShape shape_;
};

void write_piece(const AdafactorTensors& t, const Factors& factors, const AdafactorFactors& f,
                 const AdafactorUpdate& update, const Piece& piece, int64_t done, bool rehearsal) {
  at::Tensor step = factors.update_of(piece, factors.gradient_of(piece), f).mul_(f.step);
  at::Tensor moment;
  if (t.exp_avg.defined()) {
    const AdafactorCoefficients c(update);
    step = step.mul_(c.one_minus_beta1).add_(factors.part(t.exp_avg, piece).to(at::kFloat), c.beta1);
    moment = rounded_as(t.exp_avg, step, std::rotl(update.key, 32), done);
  }
  at::Tensor next = factors.weight_of(piece).mul(f.kept).sub_(step);
  if (!t.master.defined()) next = rounded_as(t.weight, next, update.key, done);
  if (rehearsal) return;
  // From here on nothing is allocated: a piece is written completely or, when out of memory, not at all.
  if (moment.defined()) factors.part(t.exp_avg, piece).copy_(moment);
  if (t.master.defined()) factors.part(t.master, piece).copy_(next);
  factors.part(t.weight, piece).copy_(next);
}

}  // namespace

void adafactor_update_composite(const AdafactorTensors& tensors, const at::Tensor& gradient_scale,
                                const AdafactorUpdate& update, AdafactorProgress& progress) {
  if (tensors.weight.numel() == 0) return;
  AdafactorTensors t = tensors;
  t.gradient = tensors.gradient.contiguous();
  const AdafactorShape shape(t);
  const Factors factors(t, gradient_scale, update, shape);
  if (progress.done == 0) progress.factors = factors.all();
  const AdafactorFactors& f = progress.factors;
  for_pieces(shape, progress.done, [&](const Piece& piece) {
    write_piece(t, factors, f, update, piece, progress.done, progress.rehearsal);
    progress.done += piece.rows * shape.columns;
  });
  if (!progress.rehearsal) {
    t.row.copy_(f.row.view_as(t.row));
    if (shape.factored) t.column.copy_(f.column.view_as(t.column));
  }
  progress.done = 0;
  progress.factors = {};
}

}  // namespace trainer
