// A model that is used, not trained: `generate`, `eval`.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "trainer/config/config.h"
#include "trainer/generation/generation_config.h"
#include "trainer/models/model.h"
#include "trainer/text/tokenizer.h"

namespace trainer {

// generation_config.json; the tokenizer's end token, which training puts behind every answer, ends an answer
// too.
GenerationConfig generation_config(const std::filesystem::path& model_directory, const Tokenizer& tokenizer);

struct OpenModel {
  std::filesystem::path base;  // the model directory, also where an adapter was opened
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Model> model;

  GenerationConfig generation_config() const { return trainer::generation_config(base, *tokenizer); }
};

// config.path: a model or adapter directory. The weights are frozen.
OpenModel open_model(const ModelConfig& config, at::Device device);

// Throws FormatError when the tokenizer gives ids that the model has no embedding of.
void check_vocabulary(const Tokenizer& tokenizer, const Model& model, const std::string& path);

}  // namespace trainer
