// Gemma 4 in GGUF files. https://github.com/ggml-org/llama.cpp (src/models/gemma4.cpp, conversion/)
#pragma once

#include <vector>

#include <nlohmann/json.hpp>

#include "export/gguf_decoder_names.h"
#include "export/gguf_layout.h"
#include "models/decoder_config.h"

namespace trainer {

// Adds the keys that other decoders do not have. Throws FormatError for what readers cannot compute.
void gemma4_in_gguf(const DecoderConfig& facts, const nlohmann::json& config, GgufKeys& keys,
                    DecoderNames& names);

// Returns the divisors of the frequencies of layers without a window, one for each pair of a head.
std::vector<float> proportional_factors(const RopeParameters& rope);

}  // namespace trainer
