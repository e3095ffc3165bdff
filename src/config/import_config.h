// Configurations of other trainers as ours: axolotl, LLaMA-Factory, Hugging Face TrainingArguments,
// torchtune.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace trainer {

struct ImportedConfig {
  std::string from;  // "axolotl"
  // Commented YAML that load_config() accepts. Each key says which key of the file it comes from.
  std::string yaml;
  // What the same words mean differently here: "micro_batch_size: ...".
  std::vector<std::string> changes;
  // What their program does without a key, and ours would do otherwise: "training.max_grad_norm: 1".
  std::vector<std::string> defaults;
  // What is not in the result, with the reason: "deepspeed: ...".
  std::vector<std::string> left_out;
};

// Reads a YAML or JSON file. Keys without a value, and switches that are off, are left out without a word if
// nothing here corresponds to them. Throws ConfigError for a file that cannot be read or is not a mapping.
ImportedConfig import_config(const std::filesystem::path& file);

}  // namespace trainer
