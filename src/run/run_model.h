// Loads the tokenizer and the model of a run, ready for training or for inference.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "trainer/config/config.h"
#include "trainer/generation/generation_config.h"
#include "trainer/models/model.h"
#include "trainer/parallel/ranks.h"
#include "trainer/run/artefacts.h"
#include "trainer/text/tokenizer.h"

namespace trainer {

// The model as it will be trained, and how it will be saved.
struct Prepared {
  std::unique_ptr<Model> model;
  Artefacts artefacts;
};

// Returns the tokenizer, with the tokens that the configuration adds. An adapter that is trained further
// (lora.adapter) may bring its own tokenizer.
std::unique_ptr<Tokenizer> load_run_tokenizer(const Config& config);

// Loads the model, or what this rank has of it. Throws FormatError when files do not fit, ConfigError when a
// key does not apply to this model.
Prepared prepare_model(const Config& config, const Tokenizer& tokenizer, at::Device device,
                       const Ranks& ranks = Ranks::none());

// Returns the settings of generation_config.json; that of `adapter` takes precedence. The tokenizer's end
// token also ends an answer, because training appends it to every answer. Throws FormatError when the file is
// damaged or does not fit the model.
GenerationConfig generation_config(const std::filesystem::path& model_directory, const Tokenizer& tokenizer,
                                   const Model& model, const std::filesystem::path& adapter = {});

// A model for inference: `trainer generate` and `trainer eval`.
struct OpenModel {
  std::filesystem::path base;     // the model directory, also when an adapter was opened
  std::filesystem::path adapter;  // empty: none was opened
  std::filesystem::path chat;     // the directory with the chat template: the adapter's, if it has one
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Model> model;

  GenerationConfig generation_config() const {
    return trainer::generation_config(base, *tokenizer, *model, adapter);
  }
};

// Loads a model with frozen weights. config.path: a model or adapter directory. `base`: that of the adapter,
// in place of the one that it names; empty: that one.
OpenModel open_model(const ModelConfig& config, at::Device device, const std::filesystem::path& base = {});

// Returns the value of objective.name that trains such a head.
std::string objective_of(RowScore score);

// Completes a configuration whose objective is a head that scores texts by what the model, or the adapter
// that is trained further, has of one: its classes, unless objective.labels names others; and that it is an
// encoder alone. Throws ConfigError if objective.labels and the adapter name other classes.
void settle_head(Config& config);

// Throws FormatError when the tokenizer produces ids that the model has no embedding for.
void check_vocabulary(const Tokenizer& tokenizer, const Model& model, const std::string& path);

// Returns model.dtype, or with auto the best type for the device. Throws DeviceError for bf16 on a GPU that
// does not support it.
at::ScalarType choose_dtype(const ModelConfig& config, at::Device device);

}  // namespace trainer
