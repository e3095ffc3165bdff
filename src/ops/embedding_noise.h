// Noise on embedded tokens that is a pure function of a key, the row's key and the column, as dropout's masks
// are (dropout.h).
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trainer {

// Returns x [..., cols] plus uniform noise: of row i between -sizes[i] and sizes[i]. row_keys is int64 and
// sizes fp32, one for each row. The noise has x's type.
at::Tensor with_noise(const at::Tensor& x, const at::Tensor& row_keys, const at::Tensor& sizes, uint64_t key);

// Returns the sizes of the noise of NEFTune for each token: alpha / sqrt(length * cols), where the length is
// that of its sample (Jain et al. 2023, section 2). `seq`: the places of each row of padded samples; 0 if
// they are packed.
std::vector<float> noise_sizes(const std::vector<int64_t>& lengths, double alpha, int64_t cols, int64_t seq);

at::Tensor noise_cpu(const at::Tensor& like, const at::Tensor& row_keys, const at::Tensor& sizes,
                     int64_t key);

}  // namespace trainer
