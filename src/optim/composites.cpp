// The updates with LibTorch's operators, for GPUs that cannot use the kernels. Nothing is read on the host.
#include <algorithm>
#include <bit>

#include <ATen/ATen.h>

#include "trainer/optim/adamw.h"
#include "trainer/optim/adamw_8bit.h"

#include "optim/adafactor_shape.h"
#include "optim/adamw_coefficients.h"
#include "optim/element_types.h"
#include "optim/moment_codes.h"

namespace trainer {

namespace {

// random_bits for the elements first .. first + count - 1, as int64. The device is that of `options`.
at::Tensor random_bits_tensor(uint64_t key, int64_t first, int64_t count, at::TensorOptions options) {
  constexpr int64_t low32 = 0xffffffff;
  at::Tensor h = at::arange(first, first + count, options.dtype(at::kLong)).bitwise_and_(at::Scalar(low32));
  h.mul_(int64_t{kRandomStride}).add_(static_cast<int64_t>(key & low32)).bitwise_and_(at::Scalar(low32));
  h.bitwise_xor_(at::bitwise_right_shift(h, at::Scalar(16)));
  h.mul_(int64_t{kRandomRound1}).bitwise_and_(at::Scalar(low32));
  h.bitwise_xor_(at::Scalar(static_cast<int64_t>(key >> 32)));
  h.bitwise_xor_(at::bitwise_right_shift(h, at::Scalar(15)));
  h.mul_(int64_t{kRandomRound2}).bitwise_and_(at::Scalar(low32));
  return h.bitwise_xor_(at::bitwise_right_shift(h, at::Scalar(16)));
}

// rounded<> on tensors: returns `value` in the type of `like`. `bits`: 16 random bits per element.
at::Tensor rounded_as(const at::Tensor& like, const at::Tensor& value, const at::Tensor& bits) {
  if (like.scalar_type() == at::kFloat) return value;
  const at::Tensor sum = value.view(at::kInt).add(bits.to(at::kInt)).bitwise_and_(at::Scalar(~0xffff));
  return at::where(value.isfinite(), sum.view(at::kFloat), value).to(like.scalar_type());
}

// The same with the lower 16 random bits of elements first, first + 1, ...
at::Tensor rounded_as(const at::Tensor& like, const at::Tensor& value, uint64_t key, int64_t first) {
  const at::Tensor bits = random_bits_tensor(key, first, value.numel(), value.options());
  return rounded_as(like, value, bits.bitwise_and_(at::Scalar(0xffff)).view(value.sizes()));
}

// update_range with LibTorch's operators on elements first .. first + count - 1 of flat tensors.
void update_piece(const AdamwTensors& t, const at::Tensor& gradient_scale, const Coefficients& c,
                  uint64_t key, int64_t first, int64_t count, bool rehearsal) {
  const auto piece = [&](const at::Tensor& tensor) { return tensor.view({-1}).narrow(0, first, count); };
  const at::Tensor g = piece(t.gradient).to(at::kFloat) * gradient_scale;
  const at::Tensor m = at::lerp(piece(t.exp_avg).to(at::kFloat), g, c.one_minus_beta1);
  const at::Tensor v = piece(t.exp_avg_sq).to(at::kFloat).mul(c.beta2).addcmul_(g, g, c.one_minus_beta2);
  const at::Tensor w = t.master.defined() ? piece(t.master) : piece(t.weight).to(at::kFloat);
  const at::Tensor next =
      w.mul(c.keep).addcdiv_(m, v.sqrt().div_(c.root_correction).add_(c.epsilon), -c.step_size);
  const at::Tensor bits = random_bits_tensor(std::rotl(key, 32), first, count, g.options());
  const at::Tensor new_m = rounded_as(t.exp_avg, m, bits.bitwise_and(at::Scalar(0xffff)));
  const at::Tensor new_v = rounded_as(t.exp_avg_sq, v, at::bitwise_right_shift(bits, at::Scalar(16)));
  const at::Tensor new_w = t.master.defined() ? next : rounded_as(t.weight, next, key, first);
  if (rehearsal) return;
  // From here on nothing is allocated: a piece is written completely or, when out of memory, not at all.
  piece(t.exp_avg).copy_(new_m);
  piece(t.exp_avg_sq).copy_(new_v);
  if (t.master.defined()) piece(t.master).copy_(new_w);
  piece(t.weight).copy_(new_w);
}

}  // namespace

// Works in pieces, so that temporary tensors stay small.
void adamw_update_composite(const AdamwTensors& tensors, const at::Tensor& gradient_scale,
                            const AdamwUpdate& update, AdamwProgress& progress) {
  AdamwTensors contiguous = tensors;
  contiguous.gradient = tensors.gradient.contiguous();
  const Coefficients coefficients(update);
  while (progress.done < tensors.weight.numel()) {
    const int64_t count = std::min(progress.piece, tensors.weight.numel() - progress.done);
    update_piece(contiguous, gradient_scale, coefficients, update.key, progress.done, count,
                 progress.rehearsal);
    progress.done += count;
  }
}

namespace {

// fp32 [256] on the device.
at::Tensor on_device(const std::array<float, 256>& values, at::TensorOptions options) {
  at::Tensor there = at::empty({256}, options.dtype(at::kFloat));
  if (there.is_meta()) return there;
  return there.copy_(at::tensor(at::ArrayRef<float>(values.data(), values.size())));
}

// The codes of one moment: values and limits on the device.
struct CodesThere {
  CodesThere(const MomentCodes& codes, at::TensorOptions options)
      : values(on_device(codes.values, options)), limits(on_device(codes.limits, options)) {}
  at::Tensor values, limits;
};

// [blocks] to [count]: each element gets what its block has.
at::Tensor spread(const at::Tensor& of_blocks, int64_t count) {
  const at::Tensor all = of_blocks.unsqueeze(1).expand({of_blocks.size(0), kAdamw8bitBlock});
  return all.reshape({-1}).narrow(0, 0, count);
}

// [count] to [blocks].
at::Tensor largest_of_blocks(const at::Tensor& moments) {
  const int64_t blocks = adamw_8bit_blocks(moments.numel());
  const at::Tensor padded =
      at::constant_pad_nd(moments.abs(), {0, blocks * kAdamw8bitBlock - moments.numel()});
  return padded.view({blocks, kAdamw8bitBlock}).amax(1);
}

// The codes of moments [count]: how many limits are at most the scaled value.
at::Tensor codes_of(const at::Tensor& moments, const at::Tensor& absmax, const at::Tensor& limits) {
  const at::Tensor inverse =
      at::where(absmax.ge(1.17549435e-38), absmax.reciprocal(), at::zeros_like(absmax));
  const at::Tensor scaled = moments * spread(inverse, moments.numel());
  if (scaled.is_meta()) return at::empty(scaled.sizes(), scaled.options().dtype(at::kByte));
  return at::bucketize(scaled, limits, /*out_int32=*/true, /*right=*/true).to(at::kByte);
}

// Elements first .. first + count - 1 of flat tensors; `first` begins a block.
void update_piece_coded(const Adamw8bitTensors& t, const at::Tensor& gradient_scale,
                        const Coefficients8bit& c, uint64_t key, int64_t first, int64_t count,
                        bool rehearsal) {
  const auto piece = [&](const at::Tensor& tensor) { return tensor.view({-1}).narrow(0, first, count); };
  const auto blocks = [&](const at::Tensor& absmax) {
    return absmax.narrow(0, first / kAdamw8bitBlock, adamw_8bit_blocks(count));
  };
  const CodesThere average(codes_of_exp_avg(), t.weight.options()),
      square(codes_of_exp_avg_sq(), t.weight.options());
  const auto decoded = [&](const at::Tensor& codes, const at::Tensor& absmax, const CodesThere& there) {
    return there.values.index_select(0, piece(codes).to(at::kInt)).mul_(spread(blocks(absmax), count));
  };
  const at::Tensor g = piece(t.gradient).to(at::kFloat) * gradient_scale;
  const at::Tensor m = decoded(t.exp_avg, t.exp_avg_absmax, average).mul_(c.beta1).add_(g, c.one_minus_beta1);
  const at::Tensor v =
      decoded(t.exp_avg_sq, t.exp_avg_sq_absmax, square).mul_(c.beta2).addcmul_(g, g, c.one_minus_beta2);
  const at::Tensor w = t.master.defined() ? piece(t.master) : piece(t.weight).to(at::kFloat);
  const at::Tensor next = at::addcdiv(w, m, v.sqrt().add_(c.epsilon), -c.step_size).mul_(c.keep);
  const at::Tensor new_w = t.master.defined() ? next : rounded_as(t.weight, next, key, first);
  const at::Tensor absmax = largest_of_blocks(m), absmax_sq = largest_of_blocks(v);
  const at::Tensor codes = codes_of(m, absmax, average.limits),
                   codes_sq = codes_of(v, absmax_sq, square.limits);
  if (rehearsal) return;
  // From here on nothing is allocated: a piece is written completely or, when out of memory, not at all.
  piece(t.exp_avg).copy_(codes);
  piece(t.exp_avg_sq).copy_(codes_sq);
  blocks(t.exp_avg_absmax).copy_(absmax);
  blocks(t.exp_avg_sq_absmax).copy_(absmax_sq);
  if (t.master.defined()) piece(t.master).copy_(new_w);
  piece(t.weight).copy_(new_w);
}

}  // namespace

// Works in pieces of whole blocks, so that temporary tensors stay small.
void adamw_8bit_update_composite(const Adamw8bitTensors& tensors, const at::Tensor& gradient_scale,
                                 const AdamwUpdate& update, AdamwProgress& progress) {
  Adamw8bitTensors contiguous = tensors;
  contiguous.gradient = tensors.gradient.contiguous();
  const Coefficients8bit coefficients(update);
  while (progress.done < tensors.weight.numel()) {
    const int64_t whole = adamw_8bit_blocks(progress.piece) * kAdamw8bitBlock;
    const int64_t count = std::min(whole, tensors.weight.numel() - progress.done);
    update_piece_coded(contiguous, gradient_scale, coefficients, update.key, progress.done, count,
                       progress.rehearsal);
    progress.done += count;
  }
}

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
