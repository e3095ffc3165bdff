// The update on a GPU: adafactor.cu, six launches for all tensors of the same types.
#include <utility>

#include <ATen/ATen.h>

#include "trainer/base/strings.h"

#include "device/kernels.h"
#include "optim/adafactor_shape.h"
#include "optim/kernel_groups.h"
#include "optim/kernel_table.h"

namespace trainer {

namespace kernel_files {
extern const KernelFile adafactor;
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

std::string factored_types_of(const AdafactorTensors& t) {
  return concat("Weight=", kernel_type(t.weight), " Gradient=", kernel_type(t.gradient),
                " State=", kernel_type(t.exp_avg));
}

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

AdafactorRow row_of(const AdafactorItem& item, const at::Tensor& gradient, int64_t first_block) {
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
                   .first_block = static_cast<int32_t>(first_block)};
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
  auto groups = kernel_groups(items, kernel_files::adafactor, factored_types_of);
  std::vector<at::Tensor> gradients;  // they live until the launches
  std::vector<AdafactorRow> rows;
  for (auto& group : groups) {
    if (group.kernels == nullptr) continue;
    group.first_row = rows.size();
    for (const AdafactorItem* item : group.items) {
      if (item->tensors.weight.numel() == 0) continue;
      gradients.push_back(item->tensors.gradient.contiguous());
      rows.push_back(row_of(*item, gradients.back(), group.blocks));
      group.blocks += tiles_of(rows.back());
      group.rows++;
    }
  }
  const at::Tensor& like = items.front().tensors.weight;
  Parts parts;
  for (AdafactorRow& row : rows) take_parts(row, parts);
  const at::Tensor scratch = parts.allocate(like);
  if (!like.is_meta()) parts.point_into(scratch);
  const at::Tensor table = kernel_table(rows, like.device());
  // From here on only the composite allocates.
  update_groups(
      groups, progress, [&](const auto& group) { launch(group, table, gradient_scale); },
      [&](const AdafactorItem& item) {
        adafactor_update_composite(item.tensors, gradient_scale, item.update, progress);
      });
}

}  // namespace trainer
