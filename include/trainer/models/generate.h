// Greedy generation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/models/model.h"

namespace trainer {

struct GreedyOptions {
  int64_t max_new_tokens = 256;
  std::vector<int32_t> eos_ids;  // a sequence ends with any of these
};

// The eos_token_id of generation_config.json, else of config.json; empty when neither has one.
std::vector<int32_t> eos_token_ids(const std::filesystem::path& model_directory);

// New tokens for each input (the prompt not repeated, eos included when it was reached). An encoder-decoder
// takes all inputs as one batch; a decoder one after the other. Inputs must not be empty.
std::vector<std::vector<int32_t>> generate_greedy(const Model& model,
                                                  const std::vector<std::vector<int32_t>>& inputs,
                                                  const GreedyOptions& options, at::Device device);

}  // namespace trainer
