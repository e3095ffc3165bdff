// The names of a model directory's weights and of their element types.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "trainer/formats/safetensors.h"

namespace trainer {

inline constexpr const char* kSingleFile = "model.safetensors";
inline constexpr const char* kIndexFile = "model.safetensors.index.json";

std::optional<Dtype> dtype_from_name(std::string_view name);  // "BF16"; nullopt for an unknown type
std::string torch_dtype_name(Dtype dtype);                    // "bfloat16", as in config.json

}  // namespace trainer
