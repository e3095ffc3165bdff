// The formats of bitsandbytes: 8-bit codes, and weights in NF4.
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

// The values of 8-bit codes in bitsandbytes' formats: the dynamic map of "8-Bit Approximations for
// Parallelism in Deep Learning" (Dettmers 2016). A code's exponent and fraction share its bits, so that small
// values keep their relative precision.

using DynamicMap = std::array<float, 256>;

// Returns the values in ascending order, the same bits as create_dynamic_map() of bitsandbytes. With a sign
// they reach from -0.99 to 1, without one from 0 to 1.
DynamicMap dynamic_map(bool with_sign);

// Weights in NF4 as bitsandbytes stores them in a model directory. Behind a weight's name:
// - X.weight: the codes, uint8 [values / 2, 1], or the same bytes as another type
// - X.weight.absmax: scales, fp32 [blocks]; with double quantisation uint8
// - X.weight.quant_map: the 16 values, fp32
// - X.weight.nested_absmax, .nested_quant_map: with double quantisation, fp32 [ceil(blocks / 256)] and [256]
// - X.weight.quant_state.bitsandbytes__nf4: JSON in bytes with quant_type, blocksize, dtype, shape,
//   nested_blocksize, nested_dtype, nested_offset

inline constexpr int64_t kNf4Block = 64;        // values with one scale
inline constexpr int64_t kNf4ScaleBlock = 256;  // scales with one scale, with double quantisation

inline constexpr std::array<float, 16> kNf4Values{
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

// Suffixes of a weight's name.
inline constexpr const char *kNf4Scales = ".absmax", *kNf4Map = ".quant_map",
                            *kNf4NestedScales = ".nested_absmax", *kNf4NestedMap = ".nested_quant_map",
                            *kNf4State = ".quant_state.bitsandbytes__nf4";

// The quantization_config of bitsandbytes in config.json.
struct BitsandbytesConfig {
  bool double_quant = false;
  // Modules that stay in 16 bits, as Transformers matches them; nullopt: only the output head.
  std::optional<std::vector<std::string>> skip_modules;
};

// Returns it; nullopt if `stored` is of another method. Throws FormatError, naming the kind and what to do,
// if it is not NF4.
std::optional<BitsandbytesConfig> read_bitsandbytes_config(const nlohmann::json& stored);

// A weight in NF4 in a file.
struct StoredNf4 {
  std::vector<int64_t> shape;  // the weight's shape
  TensorView codes, scales;
  std::optional<TensorView> nested_scales;
  float offset = 0;
};

// The names of the tensors that may stand behind a weight's name.
std::vector<std::string> nf4_companions(const std::string& weight);

// Returns the weight; nullopt if it does not fit, after adding to `problems` what is wrong.
std::optional<StoredNf4> find_stored_nf4(const std::map<std::string, TensorView>& tensors,
                                         const std::string& weight, const std::vector<int64_t>& shape,
                                         std::vector<std::string>& problems);

}  // namespace trainer
