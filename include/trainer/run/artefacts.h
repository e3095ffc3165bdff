// What a run leaves for others: a PEFT adapter or a complete model directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

#include "trainer/formats/peft.h"
#include "trainer/models/model.h"

namespace trainer {

// What is saved of a model, apart from it, so that a copy can be written on another thread.
struct SavedWeights {
  std::map<std::string, at::Tensor> tensors;  // by their names in the file; one may have two names
  at::ScalarType dtype = at::kFloat;          // of the model
  nlohmann::ordered_json config_changes;      // keys of config.json that are not the base's

  int64_t bytes() const;
};

struct Artefacts {
  std::filesystem::path base;            // the model directory that was loaded
  std::optional<AdapterConfig> adapter;  // absent: the whole model was trained
  std::filesystem::path tokenizer;       // the directory whose tokenizer is used; empty: base
  std::vector<std::string> added_tokens;

  // The adapter's tensors or all of the model's: these themselves, no copies.
  SavedWeights weights(Model& model) const;

  // Writes adapter_config.json + adapter_model.safetensors, or config.json + weights, and the tokenizer's
  // files, into `directory` (made if need be). Throws FormatError; files are written whole or not at all.
  void save(const SavedWeights& weights, const std::filesystem::path& directory) const;
  void save(Model& model, const std::filesystem::path& directory) const { save(weights(model), directory); }

  // Fills the model with what save() wrote, each tensor in its place. Throws FormatError: what is missing,
  // unexpected or misshapen.
  void load(Model& model, const std::filesystem::path& directory) const;
};

}  // namespace trainer
