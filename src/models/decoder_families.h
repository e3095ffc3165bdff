// The model families with Llama's structure: each reads its config.json, in a file of its own.
#pragma once

#include "models/decoder_config.h"

namespace trainer {

DecoderConfig gemma2_config(const nlohmann::json& config);
DecoderConfig gemma3_config(const nlohmann::json& config);
DecoderConfig granite_config(const nlohmann::json& config);
DecoderConfig llama_config(const nlohmann::json& config);
DecoderConfig mistral_config(const nlohmann::json& config);
DecoderConfig phi3_config(const nlohmann::json& config);
DecoderConfig qwen2_config(const nlohmann::json& config);
DecoderConfig qwen3_config(const nlohmann::json& config);
DecoderConfig smollm3_config(const nlohmann::json& config);

}  // namespace trainer
