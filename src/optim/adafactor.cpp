// Adafactor, and its update on a GPU: adafactor.cu, six launches for all tensors of the same types.
#include "trainer/optim/adafactor.h"

#include <cmath>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/random.h"
#include "device/kernels.h"
#include "optim/adafactor_shape.h"
#include "optim/kernel_groups.h"
#include "optim/state_memory.h"

namespace trainer {

Adafactor::Adafactor(std::vector<TrainedParameter> parameters, const OptimizerConfig& config, uint64_t seed)
    : parameters_(std::move(parameters)), config_(config), seed_(seed) {
  const at::NoGradGuard no_grad;
  for (const TrainedParameter& parameter : parameters_) states_.push_back(state_for(parameter.value));
}

Adafactor::State Adafactor::state_for(const at::Tensor& weight) const {
  // All state is allocated here.
  const auto zeros = [&](at::IntArrayRef shape, at::ScalarType type) {
    return new_state(shape, weight.options().dtype(type).requires_grad(false));
  };
  State state;
  const bool master = config_.master_weights && weight.scalar_type() != at::kFloat;
  if (weight.dim() < 2) {
    state.row = zeros(weight.sizes(), at::kFloat);
  } else {
    std::vector<int64_t> rows = weight.sizes().vec(), columns = rows;
    rows.pop_back();
    columns.erase(columns.end() - 2);
    state.row = zeros(rows, at::kFloat);
    state.column = zeros(columns, at::kFloat);
  }
  if (config_.beta1) state.exp_avg = zeros(weight.sizes(), state_type(config_.state_dtype, weight, master));
  if (master) state.master = zeros(weight.sizes(), at::kFloat).copy_(weight);
  return state;
}

// The tensors that have gradients.
std::vector<AdafactorItem> Adafactor::items(const Gradients& gradients, double learning_rate) const {
  const int64_t step = steps_ + 1;
  const uint64_t key = derive(seed_, static_cast<uint64_t>(step));
  std::vector<AdafactorItem> out;
  for (size_t i = 0; i < parameters_.size(); i++) {
    const at::Tensor gradient = gradients.get(parameters_[i]);
    if (!gradient.defined()) continue;
    const TrainedParameter& parameter = parameters_[i];
    const State& state = states_[i];
    const AdafactorUpdate update{learning_rate,
                                 1.0 - std::pow(static_cast<double>(step), config_.decay_rate),
                                 config_.eps.first,
                                 config_.eps.second,
                                 config_.clip_threshold,
                                 config_.beta1.value_or(0.0),
                                 config_.scale_parameter,
                                 parameter.decay ? config_.weight_decay : 0.0,
                                 derive(key, parameter.name)};
    out.push_back(
        {{parameter.value.detach(), gradient, state.row, state.column, state.exp_avg, state.master}, update});
  }
  return out;
}

void Adafactor::step(const Gradients& gradients, const at::Tensor& norm, double max_grad_norm,
                     double learning_rate) {
  const at::NoGradGuard no_grad;
  adafactor_update(items(gradients, learning_rate), clip_scale(norm, max_grad_norm), progress_);
  steps_++;
  progress_ = {};
}

void Adafactor::rehearse(const Gradients& gradients, const at::Tensor& norm, double max_grad_norm) {
  const at::NoGradGuard no_grad;
  AdafactorProgress rehearsal{.rehearsal = true};
  adafactor_update(items(gradients, 0.0), clip_scale(norm, max_grad_norm), rehearsal);
}

void Adafactor::move_to(at::Device device) {
  const at::NoGradGuard no_grad;
  for (State& state : states_) move_state({&state.row, &state.column, &state.exp_avg, &state.master}, device);
}

OptimizerTensors Adafactor::tensors() const {
  OptimizerTensors kept;
  for (size_t i = 0; i < parameters_.size(); i++) {
    auto& of_parameter = kept[parameters_[i].name];
    const State& state = states_[i];
    const bool factored = state.column.defined();
    of_parameter[factored ? "exp_avg_sq_row" : "exp_avg_sq"] = state.row;
    if (factored) of_parameter["exp_avg_sq_col"] = state.column;
    if (state.exp_avg.defined()) of_parameter["exp_avg"] = state.exp_avg;
    if (state.master.defined()) of_parameter["master"] = state.master;
  }
  return kept;
}

namespace {

constexpr int64_t kTileRows = 256, kTileColumns = 1024;

// A row of the kernels' table.
struct AdafactorRow {
  void* weight;
  const void* gradient;
  void* exp_avg;
  float *master, *row, *column, *new_row, *new_column, *row_sums, *column_sums, *means, *tile_squares, *steps;
  uint64_t key;
  int64_t matrices, rows, columns;
  AdafactorCoefficients coefficients;
  int32_t row_tiles, column_tiles, factored, first_block;
};

// Temporary memory of the rows: each takes a part of one allocation, whose size is known once all have. The
// parts are offsets until then.
class Parts {
 public:
  void take(float** pointer, int64_t count) {
    taken_.emplace_back(pointer, floats_);
    floats_ += count;
  }
  at::Tensor allocate(const at::Tensor& like) const {
    return at::empty({floats_}, like.options().dtype(at::kFloat));
  }
  void point_into(const at::Tensor& scratch) const {
    float* first = scratch.mutable_data_ptr<float>();
    for (const auto& [pointer, offset] : taken_) *pointer = first + offset;
  }

 private:
  std::vector<std::pair<float**, int64_t>> taken_;
  int64_t floats_ = 0;
};

int64_t tiles(int64_t length, int64_t size) { return (length + size - 1) / size; }

float* floats_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<float*>(tensor.mutable_data_ptr()) : nullptr;
}

AdafactorRow adafactor_row(const AdafactorItem& item, const at::Tensor& gradient, int32_t first_block) {
  const AdafactorTensors& t = item.tensors;
  const AdafactorShape shape(t);
  AdafactorRow row{.weight = t.weight.mutable_data_ptr(),
                   .gradient = gradient.const_data_ptr(),
                   .exp_avg = t.exp_avg.defined() ? t.exp_avg.mutable_data_ptr() : nullptr,
                   .master = floats_of(t.master),
                   .row = floats_of(t.row),
                   .column = floats_of(t.column),
                   .new_row = nullptr,
                   .new_column = nullptr,
                   .row_sums = nullptr,
                   .column_sums = nullptr,
                   .means = nullptr,
                   .tile_squares = nullptr,
                   .steps = nullptr,
                   .key = item.update.key,
                   .matrices = shape.matrices,
                   .rows = shape.rows,
                   .columns = shape.columns,
                   .coefficients = AdafactorCoefficients(item.update),
                   .row_tiles = static_cast<int32_t>(tiles(shape.rows, kTileRows)),
                   .column_tiles = static_cast<int32_t>(tiles(shape.columns, kTileColumns)),
                   .factored = shape.factored ? 1 : 0,
                   .first_block = first_block};
  return row;
}

int64_t tiles_of(const AdafactorRow& row) { return row.matrices * row.row_tiles * row.column_tiles; }

void take_parts(AdafactorRow& row, Parts& parts) {
  parts.take(&row.tile_squares, 2 * tiles_of(row));
  parts.take(&row.steps, 2);
  if (row.factored == 0) return;
  parts.take(&row.new_row, row.matrices * row.rows);
  parts.take(&row.new_column, row.matrices * row.columns);
  parts.take(&row.row_sums, row.matrices * row.column_tiles * row.rows);
  parts.take(&row.column_sums, row.matrices * row.row_tiles * row.columns);
  parts.take(&row.means, row.matrices);
}

void launch(const KernelGroup<AdafactorItem>& group, const at::Tensor& table,
            const at::Tensor& gradient_scale) {
  const void *rows = table.const_data_ptr(), *scale = gradient_scale.const_data_ptr();
  const int first = static_cast<int>(group.first_row);
  const KernelGrid grid = grid_of_blocks(group.blocks);
  const Kernels& kernels = *group.kernels;
  kernels.start("adafactor_sums", grid, rows, first, group.rows, scale);
  kernels.start("adafactor_moments", grid, rows, first, group.rows);
  kernels.start("adafactor_means", grid, rows, first, group.rows);
  kernels.start("adafactor_squares", grid, rows, first, group.rows, scale);
  kernels.start("adafactor_steps", grid, rows, first, group.rows);
  kernels.start("adafactor_write", grid, rows, first, group.rows, scale);
}

}  // namespace

void adafactor_update_gpu(const std::vector<AdafactorItem>& items, const at::Tensor& gradient_scale,
                          AdafactorProgress& progress) {
  auto all =
      kernel_groups(items, kernel_file("adafactor"), kernel_types<AdafactorTensors>, adafactor_row, tiles_of);
  const at::Tensor& like = items.front().tensors.weight;
  Parts parts;
  for (AdafactorRow& row : all.rows) take_parts(row, parts);
  const at::Tensor scratch = parts.allocate(like);
  if (!like.is_meta()) parts.point_into(scratch);
  const at::Tensor table = kernel_table(all.rows, like.device());
  // From here on nothing is allocated.
  update_groups(all.groups, progress, [&](const auto& group) { launch(group, table, gradient_scale); });
}

}  // namespace trainer
