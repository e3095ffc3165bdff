// Refuses sizes that no real model has, before anything of that size is allocated.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "trainer/formats/safetensors.h"

namespace trainer {

// Returns the largest value that is accepted for a size in config.json, by its key.
int64_t largest_size(const std::string& key);

// Throws FormatError when a token id in config.json (pad_token_id, decoder_start_token_id, eos_token_id) is
// outside the vocabulary.
void check_token_ids(const nlohmann::json& config, int64_t vocab_size);

// Throws FormatError for more than 10^13 parameters: each size may be possible, but no real model has that
// many together.
void check_total_size(double parameters);

// Returns whether the type is a floating point type, as weights must be. Integer weights come from a damaged
// file or from another kind of file.
bool is_floating(Dtype dtype);

}  // namespace trainer
