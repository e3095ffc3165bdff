// Weights in FP8 (e4m3) as other programs store them in a model directory: X.weight has the type F8_E4M3, and
// a value is its code times the scale of its block. There are two forms, which differ in config.json's
// quant_method and in the name of the scales:
// - fp8 (DeepSeek, Qwen, Mistral): X.weight_scale_inv, also X.weight_scale. Blocks of weight_block_size rows
//   and columns, or one scale for the whole weight if that is null.
// - compressed-tensors (vLLM), format float-quantized: X.weight_scale. A scale a row [rows, 1], a weight [1],
//   or a block.
// Scales are fp32, bf16 or fp16. Files may also have scales for activations, which training does not use.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/formats/safetensors.h"

namespace trainer {

// Suffix of a weight's name.
inline constexpr const char* kFp8Scales = "_scale";

// The quantization_config of either form.
struct StoredFp8Config {
  std::array<int64_t, 2> block{};  // rows and columns with one scale; 0: all of them
  // Modules that stay in 16 bits, as names or regular expressions; nullopt: only the output head.
  std::optional<std::vector<std::string>> skip_modules;
};

// Returns it; nullopt if `stored` is of another method. Throws FormatError, naming the kind and what to do,
// if it is not e4m3.
std::optional<StoredFp8Config> read_fp8_config(const nlohmann::json& stored);
// Returns that of compressed-tensors for a scale a row, and activations that are quantised by token when the
// model is used. `dense`: the linear layers that are not quantised.
nlohmann::ordered_json compressed_tensors_config(const std::vector<std::string>& dense);

// A weight in FP8 in a file.
struct StoredFp8 {
  TensorView codes, scales;
  std::array<int64_t, 2> block{};
};

// Returns whether the weight is stored so, judged by names and types alone.
bool is_stored_fp8(const std::map<std::string, TensorView>& tensors, const std::string& weight);
// The names of the tensors that may stand beside the weight's own.
std::vector<std::string> fp8_companions(const std::string& weight);
// Returns the weight; nullopt if it does not fit, after adding to `problems` what is wrong. `block`: what
// config.json says; scales of a row or of the whole weight are known by their shape.
std::optional<StoredFp8> find_stored_fp8(const std::map<std::string, TensorView>& tensors,
                                         const std::string& weight, const std::vector<int64_t>& shape,
                                         const std::array<int64_t, 2>& block,
                                         std::vector<std::string>& problems);

}  // namespace trainer
