// What a run leaves for others: a PEFT adapter or a complete model directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trainer/formats/peft.h"
#include "trainer/models/model.h"

namespace trainer {

struct Artefacts {
  std::filesystem::path base;            // the model directory that was loaded
  std::optional<AdapterConfig> adapter;  // absent: the whole model was trained
  std::filesystem::path tokenizer;       // the directory whose tokenizer is used; empty: base
  std::vector<std::string> added_tokens;

  // Writes adapter_config.json + adapter_model.safetensors, or config.json + weights, and the tokenizer's
  // files, into `directory` (made if need be). Returns the bytes of the weights. Throws FormatError; files
  // are written whole or not at all.
  int64_t save(Model& model, const std::filesystem::path& directory) const;

  // The same as OUT/checkpoint-STEP, under another name until it is complete; then removes the oldest
  // checkpoints beyond `total_limit` (0: keeps all).
  std::filesystem::path save_checkpoint(Model& model, const std::filesystem::path& output_dir, int64_t step,
                                        int64_t total_limit, int64_t* bytes) const;
};

}  // namespace trainer
