// Adafactor's update (src/optim/adafactor_cpu.cpp) of many tensors. Open: Weight, Gradient, State. A block
// works on a tile of one matrix: up to 256 rows, and four columns for each of its 256 threads. Only the last
// kernel writes what outlives the update, and every sum has a fixed order.
#include "optim/updates.cuh"

struct AdafactorCoefficients {
  float learning_rate, keep, take, epsilon, least_scale, clip_threshold, beta1, one_minus_beta1, weight_decay;
  int scale_parameter;
};

// A tensor of [matrices, rows, columns]; without factors it is one row.
struct AdafactorRow {
  Weight* weight;
  const Gradient* gradient;
  State* exp_avg;       // nullptr: none
  float* master;        // nullptr, or the values that are updated
  float *row, *column;  // the second moment: [matrices, rows] and [matrices, columns]; or [columns]
  float *new_row, *new_column;
  float *row_sums, *column_sums;  // [matrices, column_tiles, rows] and [matrices, row_tiles, columns]
  float* means;                   // [matrices], of new_row
  float *tile_squares, *steps;    // [tiles, 2]: of update and weight; [2]: factors of update and weight
  unsigned long long key;
  long long matrices, rows, columns;
  AdafactorCoefficients coefficients;
  int row_tiles, column_tiles, factored, first_block;
};

constexpr int kMostRows = 256, kStrip = 16;

struct Tile {
  int number, matrix, row_tile, column_tile, rows, width;  // width: columns of this thread
  long long first_row, column;
  bool aligned;  // four columns are moved at once
};

DEVICE Tile tile_of_block(const AdafactorRow& t) {
  Tile tile;
  tile.number = static_cast<int>(blockIdx.x) - t.first_block;
  const int of_matrix = t.row_tiles * t.column_tiles, number = tile.number % of_matrix;
  tile.matrix = tile.number / of_matrix;
  tile.row_tile = number / t.column_tiles;
  tile.column_tile = number % t.column_tiles;
  tile.first_row = static_cast<long long>(tile.row_tile) * kMostRows;
  const long long rows = t.rows - tile.first_row;
  tile.rows = rows < kMostRows ? static_cast<int>(rows) : kMostRows;
  tile.column = (static_cast<long long>(tile.column_tile) * blockDim.x + threadIdx.x) * 4;
  const long long width = t.columns - tile.column;
  tile.width = width >= 4 ? 4 : (width > 0 ? static_cast<int>(width) : 0);
  tile.aligned = t.columns % 4 == 0 && is_aligned(t.weight) && is_aligned(t.gradient) &&
                 is_aligned(t.exp_avg) && is_aligned(t.master);
  return tile;
}

// The thread's first element in a row of the tile.
DEVICE long long element_of(const AdafactorRow& t, const Tile& tile, int row) {
  return (tile.matrix * t.rows + tile.first_row + row) * t.columns + tile.column;
}

// The thread's values, and zeros beyond the last column.
template <class T>
DEVICE Pack<T, 4> load_columns(const T* from, const Tile& tile) {
  if (tile.aligned && tile.width == 4) return load<4>(from);
  Pack<T, 4> values = {};
  for (int k = 0; k < tile.width; k++) values.at[k] = from[k];
  return values;
}
template <class T>
DEVICE void store_columns(T* to, const Pack<T, 4>& values, const Tile& tile) {
  if (tile.aligned && tile.width == 4) {
    store<4>(to, values);
  } else {
    for (int k = 0; k < tile.width; k++) to[k] = values.at[k];
  }
}

DEVICE const AdafactorRow* row_of_table(const AdafactorRow* table, int first_row, int row_count) {
  return table + first_row + row_of_block(table + first_row, row_count);
}

// The sums of squares over the rows and columns of each tile.
KERNEL adafactor_sums(const AdafactorRow* table, int first_row, int row_count, const float* gradient_scale) {
  const AdafactorRow t = *row_of_table(table, first_row, row_count);
  if (t.factored == 0) return;
  const Tile tile = tile_of_block(t);
  const float scale = *gradient_scale;
  __shared__ float of_warps[8][kMostRows];
  float of_columns[4] = {};
  for (int strip = 0; strip < tile.rows; strip += kStrip) {
    float of_strip[4] = {};
    for (int r = strip; r < strip + kStrip && r < tile.rows; r++) {
      const auto gradients = load_columns(t.gradient + element_of(t, tile, r), tile);
      float sum = 0.0f;
      for (int k = 0; k < 4; k++) {
        const float g = wide(gradients.at[k]) * scale;
        of_strip[k] += g * g;
        sum += g * g;
      }
      for (int distance = 16; distance > 0; distance /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, distance);
      }
      if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32][r] = sum;
    }
    for (int k = 0; k < 4; k++) of_columns[k] += of_strip[k];
  }
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < tile.rows) {
    float sum = 0.0f;
    for (unsigned warp = 0; warp < blockDim.x / 32; warp++) sum += of_warps[warp][threadIdx.x];
    const long long row = (tile.matrix * t.column_tiles + tile.column_tile) * t.rows + tile.first_row;
    t.row_sums[row + threadIdx.x] = sum;
  }
  const long long column = (tile.matrix * t.row_tiles + tile.row_tile) * t.columns + tile.column;
  for (int k = 0; k < tile.width; k++) t.column_sums[column + k] = of_columns[k];
}

DEVICE float new_moment(const AdafactorCoefficients& c, float moment, float mean_square) {
  return moment * c.keep + (mean_square + c.epsilon) * c.take;
}

// The new second moments: rows by the first tiles along the columns, columns by those along the rows.
KERNEL adafactor_moments(const AdafactorRow* table, int first_row, int row_count) {
  const AdafactorRow t = *row_of_table(table, first_row, row_count);
  if (t.factored == 0) return;
  const Tile tile = tile_of_block(t);
  if (tile.column_tile == 0 && static_cast<int>(threadIdx.x) < tile.rows) {
    const long long row = tile.first_row + threadIdx.x, i = tile.matrix * t.rows + row;
    float sum = 0.0f;
    for (int n = 0; n < t.column_tiles; n++) {
      sum += t.row_sums[(tile.matrix * t.column_tiles + n) * t.rows + row];
    }
    t.new_row[i] = new_moment(t.coefficients, t.row[i], sum / static_cast<float>(t.columns));
  }
  for (int k = 0; tile.row_tile == 0 && k < tile.width; k++) {
    const long long i = tile.matrix * t.columns + tile.column + k;
    float sum = 0.0f;
    for (int n = 0; n < t.row_tiles; n++) {
      sum += t.column_sums[(tile.matrix * t.row_tiles + n) * t.columns + tile.column + k];
    }
    t.new_column[i] = new_moment(t.coefficients, t.column[i], sum / static_cast<float>(t.rows));
  }
}

// The mean of a matrix's rows, by its first tile.
KERNEL adafactor_means(const AdafactorRow* table, int first_row, int row_count) {
  const AdafactorRow t = *row_of_table(table, first_row, row_count);
  const Tile tile = tile_of_block(t);
  if (t.factored == 0 || tile.row_tile != 0 || tile.column_tile != 0) return;
  float sum = 0.0f;
  for (long long r = threadIdx.x; r < t.rows; r += blockDim.x) sum += t.new_row[tile.matrix * t.rows + r];
  sum = over_block<Sum>(sum);
  if (threadIdx.x == 0) t.means[tile.matrix] = sum / static_cast<float>(t.rows);
}

// The factors of the gradient in the thread's columns.
struct ColumnFactors {
  float at[4];
};

DEVICE ColumnFactors column_factors(const AdafactorRow& t, const Tile& tile) {
  ColumnFactors factors = {};
  for (int k = 0; t.factored != 0 && k < tile.width; k++) {
    factors.at[k] = 1.0f / sqrtf(t.new_column[tile.matrix * t.columns + tile.column + k]);
  }
  return factors;
}
DEVICE float row_factor(const AdafactorRow& t, const Tile& tile, int row) {
  if (t.factored == 0) return 1.0f;
  return 1.0f / sqrtf(t.new_row[tile.matrix * t.rows + tile.first_row + row] / t.means[tile.matrix]);
}

// Column k's update before clipping and learning rate, and without factors its new moment.
DEVICE float update_of(const AdafactorRow& t, const ColumnFactors& factors, float of_row, float g,
                       long long element, int k, float* moment) {
  if (t.factored != 0) return g * of_row * factors.at[k];
  *moment = new_moment(t.coefficients, t.row[element + k], g * g);
  return g / sqrtf(*moment);
}

// The sums of squares of each tile's update and, if needed, of its weights.
KERNEL adafactor_squares(const AdafactorRow* table, int first_row, int row_count,
                         const float* gradient_scale) {
  const AdafactorRow t = *row_of_table(table, first_row, row_count);
  const Tile tile = tile_of_block(t);
  const ColumnFactors factors = column_factors(t, tile);
  const float scale = *gradient_scale;
  float of_update = 0.0f, of_weight = 0.0f;
  for (int strip = 0; strip < tile.rows; strip += kStrip) {
    float update = 0.0f, weight = 0.0f;
    for (int r = strip; r < strip + kStrip && r < tile.rows; r++) {
      const long long element = element_of(t, tile, r);
      const auto gradients = load_columns(t.gradient + element, tile);
      const float of_row = row_factor(t, tile, r);
      for (int k = 0; k < tile.width; k++) {
        float moment = 0.0f;
        const float u = update_of(t, factors, of_row, wide(gradients.at[k]) * scale, element, k, &moment);
        update += u * u;
        if (t.coefficients.scale_parameter != 0) {
          const float w = t.master != nullptr ? t.master[element + k] : wide(t.weight[element + k]);
          weight += w * w;
        }
      }
    }
    of_update += update;
    of_weight += weight;
  }
  of_update = over_block<Sum>(of_update);
  of_weight = over_block<Sum>(of_weight);
  if (threadIdx.x == 0) {
    t.tile_squares[2 * tile.number] = of_update;
    t.tile_squares[2 * tile.number + 1] = of_weight;
  }
}

// The factors of a tensor's update and of its weight, by its first tile.
KERNEL adafactor_steps(const AdafactorRow* table, int first_row, int row_count) {
  const AdafactorRow t = *row_of_table(table, first_row, row_count);
  const Tile tile = tile_of_block(t);
  if (tile.number != 0) return;
  const AdafactorCoefficients& c = t.coefficients;
  const long long tiles = t.matrices * t.row_tiles * t.column_tiles;
  float of_update = 0.0f, of_weight = 0.0f;
  for (long long n = threadIdx.x; n < tiles; n += blockDim.x) {
    of_update += t.tile_squares[2 * n];
    of_weight += t.tile_squares[2 * n + 1];
  }
  const float count = static_cast<float>(t.matrices * t.rows * t.columns);
  const float size = sqrtf(over_block<Sum>(of_update) / count) / c.clip_threshold;
  const float weight_size = sqrtf(over_block<Sum>(of_weight) / count);
  float rate = c.learning_rate;
  if (c.scale_parameter != 0) rate *= weight_size > c.least_scale ? weight_size : c.least_scale;
  if (threadIdx.x == 0) {
    t.steps[0] = rate / (size > 1.0f ? size : 1.0f);
    t.steps[1] = 1.0f - c.weight_decay * rate;
  }
}

// The thread's columns of one row.
DEVICE void write_columns(const AdafactorRow& t, const Tile& tile, const ColumnFactors& factors, float of_row,
                          float scale, long long element) {
  const AdafactorCoefficients& c = t.coefficients;
  const unsigned low = static_cast<unsigned>(t.key), high = static_cast<unsigned>(t.key >> 32);
  const float step = t.steps[0], kept = t.steps[1];
  const auto gradients = load_columns(t.gradient + element, tile);
  auto weights = load_columns(t.weight + element, tile);
  Pack<State, 4> averages = {};
  Pack<float, 4> masters = {};
  if (t.exp_avg != nullptr) averages = load_columns(t.exp_avg + element, tile);
  if (t.master != nullptr) masters = load_columns(t.master + element, tile);
  for (int k = 0; k < tile.width; k++) {
    const unsigned index = static_cast<unsigned>(element) + k;
    float moment = 0.0f;
    float u = update_of(t, factors, of_row, wide(gradients.at[k]) * scale, element, k, &moment) * step;
    if (t.factored == 0) t.row[element + k] = moment;
    if (t.exp_avg != nullptr) {
      u = wide(averages.at[k]) * c.beta1 + u * c.one_minus_beta1;
      averages.at[k] = rounded_by<State>(u, random_bits(high, low, index));
    }
    const float next = (t.master != nullptr ? masters.at[k] : wide(weights.at[k])) * kept - u;
    masters.at[k] = next;
    weights.at[k] =
        t.master != nullptr ? narrow<Weight>(next) : rounded_by<Weight>(next, random_bits(low, high, index));
  }
  if (t.exp_avg != nullptr) store_columns(t.exp_avg + element, averages, tile);
  if (t.master != nullptr) store_columns(t.master + element, masters, tile);
  store_columns(t.weight + element, weights, tile);
}

KERNEL adafactor_write(const AdafactorRow* table, int first_row, int row_count, const float* gradient_scale) {
  const AdafactorRow t = *row_of_table(table, first_row, row_count);
  const Tile tile = tile_of_block(t);
  const ColumnFactors factors = column_factors(t, tile);
  const float scale = *gradient_scale;
  for (int r = 0; r < tile.rows; r++) {
    write_columns(t, tile, factors, row_factor(t, tile, r), scale, element_of(t, tile, r));
  }
  if (t.factored == 0) return;
  if (tile.column_tile == 0 && static_cast<int>(threadIdx.x) < tile.rows) {
    const long long i = tile.matrix * t.rows + tile.first_row + threadIdx.x;
    t.row[i] = t.new_row[i];
  }
  for (int k = 0; tile.row_tile == 0 && k < tile.width; k++) {
    const long long i = tile.matrix * t.columns + tile.column + k;
    t.column[i] = t.new_column[i];
  }
}
