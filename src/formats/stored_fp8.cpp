#include "formats/stored_fp8.h"

#include <algorithm>
#include <cstring>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"

namespace trainer {
namespace {

using nlohmann::json;

constexpr const char* kFp8BlockScales = "_scale_inv";
constexpr int64_t kUsualBlock = 128;

[[noreturn]] void refuse_fp8(const std::string& what) {
  throw FormatError(concat("config.json: quantization_config: ", what,
                           " is not supported; use the model without quantisation, with model.quantize: fp8 "
                           "or nf4 to save memory"));
}

bool is_given(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && !found->is_null() && !(found->is_structured() && found->empty());
}

// A list of module names; compressed-tensors marks regular expressions by "re:".
std::optional<std::vector<std::string>> list_of_modules(const json& stored, const char* key) {
  if (!stored.contains(key) || stored[key].is_null()) return std::nullopt;
  const json& list = stored[key];
  if (!list.is_array() || !std::ranges::all_of(list, [](const json& entry) { return entry.is_string(); }))
    throw FormatError(concat("config.json: quantization_config: ", key, ": must be a list of names"));
  std::vector<std::string> names;
  for (const json& entry : list) {
    std::string name = entry.get<std::string>();
    if (name.starts_with("re:")) name.erase(0, 3);
    if (!name.empty()) names.push_back(name);
  }
  return names;
}

std::array<int64_t, 2> block_size(const json& stored, const char* key) {
  const json& block = stored[key];
  const auto is_size = [](const json& n) { return n.is_number_integer() && n.get<int64_t>() > 0; };
  if (!block.is_array() || block.size() != 2 || !std::ranges::all_of(block, is_size)) {
    throw FormatError(concat("config.json: quantization_config: ", key,
                             ": expected the rows and columns of a block, found ", block.dump()));
  }
  return {block[0].get<int64_t>(), block[1].get<int64_t>()};
}

StoredFp8Config read_block_config(const json& stored) {
  StoredFp8Config out;
  if (is_given(stored, "weight_block_size")) {
    out.block = block_size(stored, "weight_block_size");
  } else if (!stored.contains("weight_block_size")) {
    out.block = {kUsualBlock, kUsualBlock};
  }
  for (const char* key : {"modules_to_not_convert", "ignored_layers"})
    if (!out.skip_modules) out.skip_modules = list_of_modules(stored, key);
  return out;
}

// What a group of modules has, "float in 8 bits by channel".
std::array<int64_t, 2> read_group(const json& group) {
  const json weights = group.is_object() ? group.value("weights", json()) : json();
  if (!weights.is_object()) refuse_fp8("compressed-tensors without a description of the weights");
  const std::string type = config_string(weights, "type", ""), by = config_string(weights, "strategy", "");
  const json bits = weights.value("num_bits", json());
  if (type != "float" || bits != 8)
    refuse_fp8(concat("compressed-tensors with weights of type ", type, " in ", bits.dump(), " bits"));
  if (by == "tensor") return {0, 0};
  if (by == "channel") return {1, 0};
  if (by != "block") refuse_fp8(concat("compressed-tensors with scales by ", by));
  return block_size(weights, "block_structure");
}

StoredFp8Config read_compressed_tensors(const json& stored) {
  if (is_given(stored, "transform_config")) refuse_fp8("compressed-tensors with rotated weights");
  if (is_given(stored, "sparsity_config") &&
      config_string(stored["sparsity_config"], "format", "dense") != "dense")
    refuse_fp8("compressed-tensors with sparse weights");
  const json groups = stored.value("config_groups", json());
  if (!groups.is_object() || groups.empty()) refuse_fp8("compressed-tensors without config_groups");
  StoredFp8Config out;
  for (const json& group : groups) out.block = read_group(group);
  out.skip_modules = list_of_modules(stored, "ignore");
  return out;
}

// Says what is wrong with the bits of a scale; "" if it is a positive number or 0.
std::string wrong_with(uint32_t bits, uint32_t sign, uint32_t infinity) {
  if ((bits & ~sign) == 0) return "";
  if ((bits & ~sign) > infinity) return "NaN";
  if ((bits & sign) != 0) return "negative";
  return bits == infinity ? "infinite" : "";
}

// Returns whether all codes of a block are 0 or -0; `index`: of the block, row by row.
bool holds_zeros(const TensorView& codes, const std::array<int64_t, 2>& block, int64_t index) {
  const int64_t rows = codes.shape[0], columns = codes.shape[1];
  const int64_t height = block[0] == 0 ? rows : block[0], width = block[1] == 0 ? columns : block[1];
  const int64_t blocks_beside = (columns + width - 1) / width;
  const int64_t top = index / blocks_beside * height, left = index % blocks_beside * width;
  for (int64_t row = top; row < std::min(top + height, rows); row++) {
    const auto* first = codes.data + row * columns + left;
    const auto is_zero = [](auto code) { return (static_cast<unsigned>(code) & 0x7fu) == 0; };
    if (!std::all_of(first, first + std::min(width, columns - left), is_zero)) return false;
  }
  return true;
}

// Says what is wrong with the first scale that is none; "" if all are positive numbers, or 0 where all that
// they scale is 0, as some quantisers leave rows and blocks without weights.
std::string wrong_with_scales(const TensorView& scales, const TensorView& codes,
                              const std::array<int64_t, 2>& block) {
  const size_t size = dtype_size(scales.dtype);
  const uint32_t sign = size == 4 ? 0x80000000 : 0x8000;
  const uint32_t infinity = size == 4 ? 0x7f800000 : scales.dtype == Dtype::bf16 ? 0x7f80 : 0x7c00;
  for (size_t at = 0; at < scales.nbytes; at += size) {
    uint32_t bits = 0;
    std::memcpy(&bits, scales.data + at, size);  // little-endian
    if (const std::string wrong = wrong_with(bits, sign, infinity); !wrong.empty())
      return concat("scale ", at / size, " is ", wrong, ", and must be a positive number");
    if ((bits & ~sign) == 0 && !holds_zeros(codes, block, static_cast<int64_t>(at / size)))
      return concat("scale ", at / size, " is 0, and weights that it scales are not");
  }
  return "";
}

std::vector<int64_t> shape_in_blocks(const std::vector<int64_t>& shape, const std::array<int64_t, 2>& block) {
  const auto along = [&](size_t i) { return block[i] == 0 ? 1 : (shape[i] + block[i] - 1) / block[i]; };
  return {along(0), along(1)};
}

// The block that scales of this shape belong to; nullopt: none.
std::optional<std::array<int64_t, 2>> block_of(const std::vector<int64_t>& scales,
                                               const std::vector<int64_t>& shape,
                                               const std::array<int64_t, 2>& block) {
  using Shape = std::vector<int64_t>;
  if (std::ranges::all_of(scales, [](int64_t size) { return size == 1; })) return {{0, 0}};
  if (scales == shape_in_blocks(shape, block)) return block;
  if (scales == Shape{shape[0]} || scales == Shape{shape[0], 1}) return {{1, 0}};
  return std::nullopt;
}

}  // namespace

std::optional<StoredFp8Config> read_fp8_config(const json& stored) {
  const std::string method = config_string(stored, "quant_method", "");
  if (method == "fp8") return read_block_config(stored);
  if (method == "compressed-tensors") return read_compressed_tensors(stored);
  return std::nullopt;
}

nlohmann::ordered_json compressed_tensors_config(const std::vector<std::string>& dense) {
  const auto arguments = [](const char* strategy, bool dynamic) -> nlohmann::ordered_json {
    return {{"num_bits", 8},
            {"type", "float"},
            {"symmetric", true},
            {"group_size", nullptr},
            {"block_structure", nullptr},
            {"strategy", strategy},
            {"dynamic", dynamic},
            {"actorder", nullptr},
            {"observer", nullptr},
            {"observer_kwargs", nlohmann::ordered_json::object()}};
  };
  return {{"quant_method", "compressed-tensors"},
          {"format", "float-quantized"},
          {"quantization_status", "compressed"},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"weights", arguments("channel", false)},
              {"input_activations", arguments("token", true)},
              {"output_activations", nullptr}}}}},
          {"ignore", dense},
          {"kv_cache_scheme", nullptr}};
}

bool is_stored_fp8(const std::map<std::string, TensorView>& tensors, const std::string& weight) {
  const auto found = tensors.find(weight);
  if (found != tensors.end() && found->second.dtype == Dtype::f8_e4m3) return true;
  return tensors.contains(weight + kFp8Scales) || tensors.contains(weight + kFp8BlockScales);
}

std::vector<std::string> fp8_companions(const std::string& weight) {
  const std::string module = weight.substr(0, weight.rfind('.') + 1);
  std::vector<std::string> names{weight + kFp8Scales, weight + kFp8BlockScales};
  for (const char* of_activations : {"input_scale", "activation_scale", "output_scale"})
    names.push_back(module + of_activations);
  // A cache in FP8: self_attn.k_scale beside self_attn.k_proj.
  if (module.ends_with("_proj."))
    names.push_back(concat(module.substr(0, module.size() - std::strlen("proj.")), "scale"));
  return names;
}

std::optional<StoredFp8> find_stored_fp8(const std::map<std::string, TensorView>& tensors,
                                         const std::string& weight, const std::vector<int64_t>& shape,
                                         const std::array<int64_t, 2>& block,
                                         std::vector<std::string>& problems) {
  const auto wrong = [&](const std::string& what) {
    problems.push_back(what);
    return std::nullopt;
  };
  if (!tensors.contains(weight)) return wrong(concat("missing: ", weight));
  const TensorView& codes = tensors.at(weight);
  if (codes.dtype != Dtype::f8_e4m3) {
    return wrong(concat("damaged: ", weight, ": has scales for FP8, and is of type ", dtype_name(codes.dtype),
                        ", not F8_E4M3"));
  }
  if (codes.shape != shape) {
    return wrong(concat("misshapen: ", weight, ": expected ", shape_string(shape), ", found ",
                        shape_string(codes.shape)));
  }
  auto scales = tensors.find(weight + kFp8BlockScales);
  if (scales == tensors.end()) scales = tensors.find(weight + kFp8Scales);
  if (scales == tensors.end())
    return wrong(concat("missing: ", weight, kFp8Scales, ", the scales of a weight in FP8 (or ", weight,
                        kFp8BlockScales, ")"));
  const auto& [name, view] = *scales;
  if (view.dtype != Dtype::f32 && view.dtype != Dtype::bf16 && view.dtype != Dtype::f16) {
    return wrong(concat("damaged: ", name, ": is of type ", dtype_name(view.dtype),
                        "; scales are of type F32, BF16 or F16"));
  }
  const auto found = block_of(view.shape, shape, block);
  if (!found) {
    return wrong(concat("misshapen: ", name, ": expected ", shape_string(shape_in_blocks(shape, block)),
                        " (by config.json), one scale a row or one in all, found ",
                        shape_string(view.shape)));
  }
  if (const std::string what = wrong_with_scales(view, codes, *found); !what.empty())
    return wrong(concat("damaged: ", name, ": ", what));
  return StoredFp8{codes, view, *found};
}

}  // namespace trainer
