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

// A list of name suffixes, or a regular expression for whole names.
using ModuleNames = std::variant<std::string, std::vector<std::string>>;

enum class AdapterBias { none, all, lora_only };  // the biases that are trained and saved

struct AdapterConfig {
  std::string base_model_name_or_path;
  std::string revision;   // revision of a base model on the hub; empty: its main branch
  std::string task_type;  // SEQ_2_SEQ_LM, CAUSAL_LM or SEQ_CLS; empty: unknown
  int64_t r = 8;
  double lora_alpha = 8;
  double lora_dropout = 0;
  // May also be "all-linear". An empty list means PEFT's default for the model.
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

// Reads adapter_config.json. Throws FormatError when the file is missing or damaged, or when peft_type is not
// LORA. Also throws for every setting that changes the mathematics and is not supported (layer_replication,
// target_parameters, fan_in_fan_out, ...); the message names it.
AdapterConfig read_adapter_config(const std::filesystem::path& directory);
void write_adapter_config(const std::filesystem::path& directory, const AdapterConfig& config);

// Returns the directory itself, or, for an adapter directory, that of its base model. A relative path of a
// base model is also tried relative to the adapter. A name on the hub is taken from its cache or downloaded.
// Throws FormatError when the base model does not exist, or is not named.
std::filesystem::path base_directory(const std::filesystem::path& directory);
// Returns `base`, unless it is empty; else the same. Throws ConfigError for a base of what is no adapter.
std::filesystem::path base_directory(const std::filesystem::path& directory,
                                     const std::filesystem::path& base);

// Returns the adapter's tensors without PEFT's prefix "base_model.model.": "encoder....q.lora_A.weight",
// "lm_head.weight" (modules_to_save). Throws FormatError.
SafetensorsFile read_adapter_weights(const std::filesystem::path& directory);
// Adds the prefix and writes adapter_model.safetensors.
void write_adapter_weights(const std::filesystem::path& directory,
                           const std::map<std::string, TensorView>& tensors,
                           const std::map<std::string, std::string>& metadata = {});

// The key of the file's metadata that says in which form the base's weights were while the adapter was
// trained: a value of model.quantize, and kDoublyQuantised behind it if the scales were, too. Absent: as they
// are stored. PEFT does not read it.
inline constexpr const char *kTrainedOn = "trained_on", *kDoublyQuantised = " double_quant";

// The key that says, as JSON, what the outputs of a head that scores texts mean, which is saved with the
// adapter: {"score": 1, "labels": ["ham", "spam"], "pad_id": 0, ...}. PEFT does not read it.
inline constexpr const char* kScoreHead = "score_head";

}  // namespace trainer
