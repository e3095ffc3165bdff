// Groups of packed samples whose attention is computed in one batched product.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/data/sample.h"

#include "data/upload.h"

namespace trainer {

// Divides samples with so many (queries, keys) into groups. One batched product for a group costs less than
// one for each sample, and its padding costs more: the sum of both is least. Each sample is in one group; the
// groups hold indices.
std::vector<std::vector<size_t>> divide_into_groups(const std::vector<std::pair<int64_t, int64_t>>& samples);

// Returns the groups of samples that lie one after another in a row of queries and in one of keys.
std::vector<AttentionGroup> attention_groups(const std::vector<int64_t>& queries,
                                             const std::vector<int64_t>& keys,
                                             const std::vector<int64_t>& dropout_keys, Upload& upload,
                                             at::Device device);

}  // namespace trainer
