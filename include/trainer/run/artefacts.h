// The result of a run: a PEFT adapter or a complete model directory.
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
#include "trainer/formats/safetensors.h"
#include "trainer/models/model.h"
#include "trainer/models/score_head.h"

namespace trainer {

// The weights that are saved, held apart from the model, so that a copy can be written on another thread.
struct SavedWeights {
  std::map<std::string, at::Tensor> tensors;  // by name in the file; a tensor may have two names
  std::map<std::string, Dtype> types;         // types of tensors that are not written in their own
  Dtype dtype = Dtype::f32;                   // the dtype in config.json
  std::optional<ScoreHeadSpec> head;          // that scores texts
  nlohmann::ordered_json config_changes;      // keys of config.json that differ from the base's

  Dtype type_of(const std::string& name) const;  // in the file
  int64_t bytes() const;                         // in the file
};

// What training teaches besides the weights, and the files of the base do not say.
struct Taught {
  std::optional<nlohmann::ordered_json> generation_config;  // nullopt: the base's file stays
  std::string chat_template;  // the text of data.chat_template; empty: the base's stays
  std::string text;           // for the log; empty: the base's files say everything
};

struct Artefacts {
  std::filesystem::path base;            // the model directory that was loaded
  std::optional<AdapterConfig> adapter;  // absent: the whole model was trained
  std::filesystem::path tokenizer;       // the directory whose tokenizer is used; empty: base
  std::vector<std::string> added_tokens;
  std::string trained_on = {};  // the format of the base's weights (kTrainedOn); empty: as they are stored
  // The types in which the saved tensors came: those of the model's files, or of the adapter that is trained
  // further. New tensors are not in it.
  std::map<std::string, Dtype> came_as = {};
  int64_t max_length = 512;  // of a text that becomes a vector, in tokens
  Taught taught = {};

  // Returns the adapter's tensors, or all tensors of the model. They are not copied.
  SavedWeights weights(Model& model) const;

  // Writes adapter_config.json + adapter_model.safetensors, or config.json + weights, and the tokenizer's
  // files, the chat template and generation_config.json with what was taught, into `directory`, which is
  // created if it is missing. A file is written completely or not at all. Throws FormatError.
  void save(const SavedWeights& weights, const std::filesystem::path& directory) const;
  void save(Model& model, const std::filesystem::path& directory) const { save(weights(model), directory); }

  // Loads into the model, in place, what save() wrote. Throws FormatError that names the tensors that are
  // missing, unexpected or misshapen.
  void load(Model& model, const std::filesystem::path& directory) const;
};

}  // namespace trainer
