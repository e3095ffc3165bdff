// The names of a model directory's weights.
#pragma once

namespace trainer {

inline constexpr const char* kSingleFile = "model.safetensors";
inline constexpr const char* kIndexFile = "model.safetensors.index.json";

}  // namespace trainer
