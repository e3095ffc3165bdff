// Adafactor's update on the CPU, in panels of rows: sums of squares, the size of the update, then the new
// values. A panel depends on the tensor's shape alone, and sums over panels have a fixed order, so that the
// result does not depend on the number of threads.
#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "trainer/optim/adafactor.h"

#include "base/vector_math.h"
#include "device/target_device.h"
#include "memory/offload.h"
#include "optim/adafactor_shape.h"
#include "optim/element_types.h"

namespace trainer {
namespace {

constexpr int64_t kChunk = 512;  // few numbers are added up in fp32 at once

// Adds the squares of four rows, or of one, to the sums of the rows and of the columns.
template <class G>
TRAINER_INLINE void add_squares_of_four(const G* gradient, int64_t columns, float scale, int64_t count,
                                        float* row_sums, float* of_columns) {
  const G *g0 = gradient, *g1 = g0 + columns, *g2 = g1 + columns, *g3 = g2 + columns;
  float sum0 = 0.0f, sum1 = 0.0f, sum2 = 0.0f, sum3 = 0.0f;
#pragma omp simd reduction(+ : sum0, sum1, sum2, sum3)
  for (int64_t c = 0; c < count; c++) {
    const float x0 = static_cast<float>(g0[c]) * scale, x1 = static_cast<float>(g1[c]) * scale;
    const float x2 = static_cast<float>(g2[c]) * scale, x3 = static_cast<float>(g3[c]) * scale;
    of_columns[c] += (x0 * x0 + x1 * x1) + (x2 * x2 + x3 * x3);
    sum0 += x0 * x0;
    sum1 += x1 * x1;
    sum2 += x2 * x2;
    sum3 += x3 * x3;
  }
  row_sums[0] += sum0;
  row_sums[1] += sum1;
  row_sums[2] += sum2;
  row_sums[3] += sum3;
}
template <class G>
TRAINER_INLINE void add_squares_of_one(const G* gradient, float scale, int64_t count, float* row_sum,
                                       float* of_columns) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < count; c++) {
    const float x = static_cast<float>(gradient[c]) * scale;
    of_columns[c] += x * x;
    sum += x * x;
  }
  *row_sum += sum;
}

// Sets the sums of squares of a panel's rows and columns.
template <class G>
TRAINER_VECTORISED void sum_squares(const G* gradient, float scale, int64_t rows, int64_t columns,
                                    float* row_sums, float* column_sums) {
  constexpr int64_t kStrip = 32;
  for (int64_t r = 0; r < rows; r++) row_sums[r] = 0.0f;
  for (int64_t c = 0; c < columns; c++) column_sums[c] = 0.0f;
  for (int64_t strip = 0; strip < rows; strip += kStrip) {
    const int64_t end = std::min(strip + kStrip, rows);
    for (int64_t first = 0; first < columns; first += kChunk) {
      const int64_t count = std::min(kChunk, columns - first);
      float of_columns[kChunk] = {};
      int64_t r = strip;
      for (; r + 4 <= end; r += 4)
        add_squares_of_four(gradient + r * columns + first, columns, scale, count, row_sums + r, of_columns);
      for (; r < end; r++)
        add_squares_of_one(gradient + r * columns + first, scale, count, row_sums + r, of_columns);
      for (int64_t c = 0; c < count; c++) column_sums[first + c] += of_columns[c];
    }
  }
}

// Returns the sum over a row of (values factors)^2.
template <class T>
TRAINER_VECTORISED double scaled_squares(const T* values, const float* factors, int64_t count) {
  double total = 0.0;
  for (int64_t first = 0; first < count; first += kChunk) {
    const int64_t end = std::min(first + kChunk, count);
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = first; c < end; c++) {
      const float x = static_cast<float>(values[c]) * factors[c];
      sum += x * x;
    }
    total += static_cast<double>(sum);
  }
  return total;
}

template <class T>
TRAINER_VECTORISED double squares(const T* values, int64_t count) {
  double total = 0.0;
  for (int64_t first = 0; first < count; first += kChunk) {
    const int64_t end = std::min(first + kChunk, count);
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = first; c < end; c++)
      sum += static_cast<float>(values[c]) * static_cast<float>(values[c]);
    total += static_cast<double>(sum);
  }
  return total;
}

// The second moment without factors: its new values, and the inverse of their roots.
template <class G>
TRAINER_VECTORISED void new_moments(const G* gradient, const float* moments, float scale,
                                    const AdafactorCoefficients& c, int64_t count, float* next,
                                    float* inverse_roots) {
  for (int64_t i = 0; i < count; i++) {
    const float g = static_cast<float>(gradient[i]) * scale;
    next[i] = moments[i] * c.keep + (g * g + c.epsilon) * c.take;
    inverse_roots[i] = 1.0f / std::sqrt(next[i]);
  }
}

// Adds up rows of sums, and makes means and new moments of them.
TRAINER_VECTORISED void new_columns(const float* sums, int64_t panels, int64_t columns, float inverse_rows,
                                    const float* moments, const AdafactorCoefficients& c, float* next,
                                    float* inverse_roots) {
  for (int64_t i = 0; i < columns; i++) next[i] = 0.0f;
  for (int64_t panel = 0; panel < panels; panel++) {
    for (int64_t i = 0; i < columns; i++) next[i] += sums[panel * columns + i];
  }
  for (int64_t i = 0; i < columns; i++) {
    next[i] = moments[i] * c.keep + (next[i] * inverse_rows + c.epsilon) * c.take;
    inverse_roots[i] = 1.0f / std::sqrt(next[i]);
  }
}

// Pointers to a row's first value; nullptr: there is no first moment, or no master.
template <class W, class S>
struct Row {
  W* weight;
  S* exp_avg;
  float* master;
};

// `factor` and `factors` make the update of the gradient; `first` is the row's first element.
template <bool with_moment, bool with_master, class W, class G, class S>
TRAINER_VECTORISED void write_row(const Row<W, S>& row, const G* gradient, float factor, const float* factors,
                                  float kept, const AdafactorCoefficients& c, uint64_t key, int64_t first,
                                  int64_t count) {
  const uint32_t low = static_cast<uint32_t>(key), high = static_cast<uint32_t>(key >> 32);
  W* weight = row.weight;
  S* exp_avg = row.exp_avg;
  float* master = row.master;
  for (int64_t i = 0; i < count; i++) {
    const uint32_t index = static_cast<uint32_t>(first) + static_cast<uint32_t>(i);
    float step = static_cast<float>(gradient[i]) * factor * factors[i];
    if constexpr (with_moment) {
      step = static_cast<float>(exp_avg[i]) * c.beta1 + step * c.one_minus_beta1;
      exp_avg[i] = rounded<S>(step, random_bits(high, low, index));
    }
    const float w = with_master ? master[i] : static_cast<float>(weight[i]);
    const float next = w * kept - step;
    if constexpr (with_master) {
      master[i] = next;
      weight[i] = static_cast<W>(next);
    } else {
      weight[i] = rounded<W>(next, random_bits(low, high, index));
    }
  }
}

template <class W, class G, class S>
class TensorUpdate {
 public:
  TensorUpdate(const AdafactorTensors& t, const AdafactorUpdate& update, float scale,
               const AdafactorShape& shape, const AdafactorPanels& panels, const AdafactorScratch& scratch)
      : t_(t),
        c_(update),
        shape_(shape),
        panels_(panels),
        scale_(scale),
        key_(update.key),
        gradient_(t.gradient.const_data_ptr<G>()),
        weight_(t.weight.mutable_data_ptr<W>()),
        exp_avg_(t.exp_avg.defined() ? t.exp_avg.mutable_data_ptr<S>() : nullptr),
        master_(t.master.defined() ? t.master.mutable_data_ptr<float>() : nullptr),
        moments_(t.row.mutable_data_ptr<float>()),
        new_row_(scratch.floats.mutable_data_ptr<float>()),
        row_factor_(new_row_ + scratch.rows),
        new_column_(row_factor_ + scratch.rows),
        column_factor_(new_column_ + scratch.columns),
        column_sums_(column_factor_ + scratch.columns),
        sums_(scratch.sums.mutable_data_ptr<double>()) {}

  void run() {
    if (shape_.factored) find_factors();
    for_panels([&](int64_t panel) { sums_[panel] = squares_of_update(panel); });
    double total = 0.0;
    for (int64_t panel = 0; panel < panels_.count; panel++) total += sums_[panel];
    const double count = static_cast<double>(t_.weight.numel());
    const float rate = c_.learning_rate * parameter_scale(count);
    const float step =
        rate / std::max(1.0f, static_cast<float>(std::sqrt(total / count)) / c_.clip_threshold);
    const float kept = 1.0f - c_.weight_decay * rate;
    for_panels([&](int64_t panel) { write(panel, step, kept); });
    if (!shape_.factored) return;
    std::copy_n(new_row_, t_.row.numel(), moments_);
    std::copy_n(new_column_, t_.column.numel(), t_.column.mutable_data_ptr<float>());
  }

 private:
  template <class Body>
  void for_panels(const Body& body) const {
    at::parallel_for(0, panels_.count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t panel = begin; panel < end; panel++) body(panel);
    });
  }

  // The first element of a row of a matrix.
  int64_t element(int64_t matrix, int64_t row) const { return (matrix * shape_.rows + row) * shape_.columns; }

  void find_factors() {
    for_panels([&](int64_t panel) {
      const int64_t matrix = panels_.matrix(panel), first = panels_.first(panel);
      sum_squares(gradient_ + element(matrix, first), scale_, panels_.end(panel) - first, shape_.columns,
                  new_row_ + matrix * shape_.rows + first, column_sums_ + panel * shape_.columns);
    });
    at::parallel_for(0, shape_.matrices, 1, [&](int64_t begin, int64_t end) {
      for (int64_t matrix = begin; matrix < end; matrix++) find_factors_of(matrix);
    });
  }

  void find_factors_of(int64_t matrix) {
    float *next = new_row_ + matrix * shape_.rows, *factor = row_factor_ + matrix * shape_.rows;
    const float *moments = moments_ + matrix * shape_.rows, columns = static_cast<float>(shape_.columns);
    double sum = 0.0;
    for (int64_t r = 0; r < shape_.rows; r++) {
      next[r] = moments[r] * c_.keep + (next[r] / columns + c_.epsilon) * c_.take;
      sum += static_cast<double>(next[r]);
    }
    const float mean = static_cast<float>(sum / static_cast<double>(shape_.rows));
    for (int64_t r = 0; r < shape_.rows; r++) factor[r] = 1.0f / std::sqrt(next[r] / mean);
    const int64_t first = matrix * shape_.columns;
    new_columns(column_sums_ + matrix * panels_.of_matrix * shape_.columns, panels_.of_matrix, shape_.columns,
                1.0f / static_cast<float>(shape_.rows), t_.column.const_data_ptr<float>() + first, c_,
                new_column_ + first, column_factor_ + first);
  }

  // Calls body(matrix, row) for the rows of a panel, or body(first, count, moments, inverse roots) for pieces
  // of it.
  template <class Rows, class Pieces>
  void through(int64_t panel, const Rows& rows, const Pieces& pieces) const {
    if (shape_.factored) {
      for (int64_t row = panels_.first(panel); row < panels_.end(panel); row++)
        rows(panels_.matrix(panel), row);
      return;
    }
    float next[kChunk], inverse_roots[kChunk];
    for (int64_t first = panels_.first(panel); first < panels_.end(panel); first += kChunk) {
      const int64_t count = std::min(kChunk, panels_.end(panel) - first);
      new_moments(gradient_ + first, moments_ + first, scale_, c_, count, next, inverse_roots);
      pieces(first, count, next, inverse_roots);
    }
  }

  double squares_of_update(int64_t panel) const {
    double sum = 0.0;
    const auto add = [&](int64_t first, int64_t count, float factor, const float* factors) {
      const double by = static_cast<double>(factor) * static_cast<double>(scale_);
      sum += scaled_squares(gradient_ + first, factors, count) * by * by;
    };
    through(
        panel,
        [&](int64_t matrix, int64_t row) {
          add(element(matrix, row), shape_.columns, row_factor_[matrix * shape_.rows + row],
              column_factor_ + matrix * shape_.columns);
        },
        [&](int64_t first, int64_t count, const float* /*next*/, const float* inverse_roots) {
          add(first, count, 1.0f, inverse_roots);
        });
    return sum;
  }

  float parameter_scale(double count) const {
    if (c_.scale_parameter == 0) return 1.0f;
    const int64_t all = t_.weight.numel(), blocks = panels_.count, size = (all + blocks - 1) / blocks;
    at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; block++) {
        const int64_t first = block * size, width = std::clamp<int64_t>(all - first, 0, size);
        sums_[blocks + block] =
            master_ != nullptr ? squares(master_ + first, width) : squares(weight_ + first, width);
      }
    });
    double total = 0.0;
    for (int64_t block = 0; block < blocks; block++) total += sums_[blocks + block];
    return std::max(c_.least_scale, static_cast<float>(std::sqrt(total / count)));
  }

  void write(int64_t panel, float step, float kept) {
    through(
        panel,
        [&](int64_t matrix, int64_t row) {
          write_values(element(matrix, row), shape_.columns,
                       row_factor_[matrix * shape_.rows + row] * scale_ * step,
                       column_factor_ + matrix * shape_.columns, kept);
        },
        [&](int64_t first, int64_t count, const float* next, const float* inverse_roots) {
          write_values(first, count, scale_ * step, inverse_roots, kept);
          std::copy_n(next, count, moments_ + first);
        });
  }

  void write_values(int64_t first, int64_t count, float factor, const float* factors, float kept) {
    const G* gradient = gradient_ + first;
    const Row<W, S> row{weight_ + first, exp_avg_ == nullptr ? nullptr : exp_avg_ + first,
                        master_ == nullptr ? nullptr : master_ + first};
    const auto write = [&]<bool moment, bool master>() {
      write_row<moment, master>(row, gradient, factor, factors, kept, c_, key_, first, count);
    };
    if (row.exp_avg != nullptr) {
      row.master != nullptr ? write.template operator()<true, true>()
                            : write.template operator()<true, false>();
    } else {
      row.master != nullptr ? write.template operator()<false, true>()
                            : write.template operator()<false, false>();
    }
  }

  const AdafactorTensors& t_;
  AdafactorCoefficients c_;
  AdafactorShape shape_;
  AdafactorPanels panels_;
  float scale_;
  uint64_t key_;
  const G* gradient_;
  W* weight_;
  S* exp_avg_;
  float* master_;
  float* moments_;
  float *new_row_, *row_factor_, *new_column_, *column_factor_, *column_sums_;
  double* sums_;
};

void update_cpu(const AdafactorItem& item, const at::Tensor& gradient_scale, bool rehearsal) {
  AdafactorTensors t = item.tensors;
  if (t.weight.numel() == 0) return;
  const AdafactorShape shape(t);
  const AdafactorPanels panels(shape);
  t.gradient = t.gradient.contiguous();
  const AdafactorScratch scratch(shape, panels, t.weight);
  // From here on nothing is allocated.
  if (rehearsal) return;
  const float scale = gradient_scale.item<float>();
  with_type(t.weight, [&]<class W>() {
    with_type(t.gradient, [&]<class G>() {
      with_type(t.exp_avg, [&]<class S>() {
        TensorUpdate<W, G, S>(t, item.update, scale, shape, panels, scratch).run();
      });
    });
  });
}

}  // namespace

void adafactor_update(const std::vector<AdafactorItem>& items, const at::Tensor& gradient_scale,
                      AdafactorProgress& progress) {
  if (items.empty()) return;
  const at::Device device = items.front().tensors.weight.device();
  if (target_of(device) != c10::kCPU) return adafactor_update_gpu(items, gradient_scale, progress);
  for (; progress.next < items.size(); progress.next++) {
    update_cpu(items[progress.next], gradient_scale, progress.rehearsal || device.is_meta());
    const AdafactorTensors& t = items[progress.next].tensors;
    for (const at::Tensor& tensor : {t.weight, t.gradient, t.exp_avg, t.master}) release_offloaded(tensor);
  }
}

}  // namespace trainer
