// The Euclidean norm over many tensors (src/optim/gradient_norm.h). Every sum has a fixed order.
#include "optim/updates.cuh"

struct NormRow {
  const void* values;
  long long count;
  int first_block, is_bf16;
};

// A thread adds at most 32 squares in fp32; all else is added in fp64, which many GPUs do slowly.
template <class T>
DEVICE double squares_of_thread(const T* values, const Range& range) {
  float sums[4] = {};
  for (long long i = range.first + 4 * threadIdx.x; i < range.wide_last; i += 4 * blockDim.x) {
    const auto from = load<4>(values + i);
    for (int k = 0; k < 4; k++) sums[k] += wide(from.at[k]) * wide(from.at[k]);
  }
  for (long long i = range.wide_last + threadIdx.x; i < range.last; i += blockDim.x) {
    sums[0] += wide(values[i]) * wide(values[i]);
  }
  return (static_cast<double>(sums[0]) + sums[1]) + (static_cast<double>(sums[2]) + sums[3]);
}

// Valid in thread 0. blockDim.x is a power of 2, at most 512.
DEVICE double sum_over_block(double x) {
  __shared__ double of_thread[512];
  of_thread[threadIdx.x] = x;
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) of_thread[threadIdx.x] += of_thread[threadIdx.x + half];
  }
  return of_thread[0];
}

// sums [blocks]: of the squares of each block's range.
KERNEL sum_squares(const NormRow* rows, int row_count, int block_elements, double* sums) {
  const NormRow row = rows[row_of_block(rows, row_count)];
  const Range range = range_of_block(row, block_elements, is_aligned(row.values));
  const double squares = row.is_bf16 != 0 ? squares_of_thread(static_cast<const bf16*>(row.values), range)
                                          : squares_of_thread(static_cast<const float*>(row.values), range);
  const double sum = sum_over_block(squares);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// One block.
KERNEL finish_norm(const double* sums, long long count, float* norm) {
  double of_thread = 0.0;
  for (long long i = threadIdx.x; i < count; i += blockDim.x) of_thread += sums[i];
  const double sum = sum_over_block(of_thread);
  if (threadIdx.x == 0) *norm = static_cast<float>(sqrt(sum));
}
