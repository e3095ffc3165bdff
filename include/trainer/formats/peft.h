// PEFT LoRA adapters: adapter_config.json and adapter_model.safetensors.
// https://github.com/huggingface/peft (src/peft/tuners/lora/config.py, src/peft/utils/save_and_load.py)
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "trainer/formats/safetensors.h"

namespace trainer {

// Name patterns and their values, in the order in which they are tried.
template <class Value>
using ModulePatterns = std::vector<std::pair<std::string, Value>>;

// Name suffixes; or a regular expression for whole names.
using ModuleNames = std::variant<std::string, std::vector<std::string>>;

enum class AdapterBias { none, all, lora_only };  // which biases are trained and saved

struct AdapterConfig {
  std::string base_model_name_or_path;
  std::string task_type;  // SEQ_2_SEQ_LM or CAUSAL_LM; empty: not said
  int64_t r = 8;
  double lora_alpha = 8;
  double lora_dropout = 0;
  // Also "all-linear". An empty list: PEFT's default for the model.
  ModuleNames target_modules = std::vector<std::string>{};
  ModuleNames exclude_modules = std::vector<std::string>{};
  std::vector<int64_t> layers_to_transform;  // empty: all
  std::vector<std::string> layers_pattern;
  ModulePatterns<int64_t> rank_pattern;
  ModulePatterns<double> alpha_pattern;
  std::vector<std::string> modules_to_save;
  AdapterBias bias = AdapterBias::none;
  bool use_rslora = false;
  bool use_dora = false;
  bool lora_bias = false;            // lora_B has a bias
  bool ensure_weight_tying = false;  // a saved embedding stays tied to the head
};

// True when `directory` holds an adapter_config.json.
bool is_adapter_directory(const std::filesystem::path& directory);

// Throws FormatError for a missing or damaged file, a peft_type other than LORA, and everything in it that
// changes the mathematics and is not supported (layer_replication, target_parameters, fan_in_fan_out, ...),
// by name.
AdapterConfig read_adapter_config(const std::filesystem::path& directory);
void write_adapter_config(const std::filesystem::path& directory, const AdapterConfig& config);

// The directory itself, or the base model of an adapter directory (a relative path is also tried from there).
// Throws FormatError when the base is not there.
std::filesystem::path base_directory(const std::filesystem::path& directory);

// The adapter's tensors with PEFT's prefix "base_model.model." taken off: "encoder....q.lora_A.weight",
// "lm_head.weight" (modules_to_save).
SafetensorsFile read_adapter_weights(const std::filesystem::path& directory);
// Adds the prefix and writes adapter_model.safetensors.
void write_adapter_weights(const std::filesystem::path& directory,
                           const std::map<std::string, TensorView>& tensors);

}  // namespace trainer
