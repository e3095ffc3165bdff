// What no model has: refused before anything of that size is made.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "trainer/formats/safetensors.h"

namespace trainer {

// The most that a size in config.json can be, by its key.
int64_t largest_size(const std::string& key);

// Throws FormatError for an id that config.json gives to tokens (pad_token_id, decoder_start_token_id,
// eos_token_id) and that is beyond the vocabulary.
void check_token_ids(const nlohmann::json& config, int64_t vocab_size);

// Throws FormatError where sizes that are each possible are together those of no model: more than 10^13
// parameters.
void check_total_size(double parameters);

// Weights are of floating point; whole numbers in their place come from a damaged or another kind of file.
bool is_floating(Dtype dtype);

}  // namespace trainer
