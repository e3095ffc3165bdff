// A model for inference: `trainer generate` and `trainer eval`.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "trainer/config/config.h"
#include "trainer/generation/generation_config.h"
#include "trainer/models/model.h"
#include "trainer/text/tokenizer.h"

namespace trainer {

// Returns the settings of generation_config.json. The tokenizer's end token also ends an answer, because
// training appends it to every answer. Throws FormatError when the file is damaged or does not fit the model.
GenerationConfig generation_config(const std::filesystem::path& model_directory, const Tokenizer& tokenizer,
                                   const Model& model);

struct OpenModel {
  std::filesystem::path base;  // the model directory, also when an adapter was opened
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Model> model;

  GenerationConfig generation_config() const { return trainer::generation_config(base, *tokenizer, *model); }
};

// Loads a model with frozen weights. config.path: a model or adapter directory.
OpenModel open_model(const ModelConfig& config, at::Device device);

// Throws FormatError when the tokenizer produces ids that the model has no embedding for.
void check_vocabulary(const Tokenizer& tokenizer, const Model& model, const std::string& path);

}  // namespace trainer
