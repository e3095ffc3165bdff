// Sampling of tokens: every random number follows from a key, never from what was drawn before.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trainer {

// One token for each row of scores [rows, vocab] (unnormalised log-probabilities), int64 [rows]. keys: one a
// row.
at::Tensor sample(const at::Tensor& scores, const std::vector<uint64_t>& keys);

// `count` different elements for each row of scores [rows, n], drawn without replacement: their indices,
// int64 [rows, count].
at::Tensor sample_without_replacement(const at::Tensor& scores, int64_t count,
                                      const std::vector<uint64_t>& keys);

}  // namespace trainer
