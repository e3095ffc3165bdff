// Loads the tokenizer and the model of a run, and makes the model ready for training.
#pragma once

#include <filesystem>
#include <memory>

#include "trainer/config/config.h"
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

}  // namespace trainer
