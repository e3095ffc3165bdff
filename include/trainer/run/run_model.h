// The tokenizer and model of a run from its configuration: loaded, and made ready to be trained.
#pragma once

#include <filesystem>
#include <memory>

#include "trainer/config/config.h"
#include "trainer/models/model.h"
#include "trainer/run/artefacts.h"
#include "trainer/text/tokenizer.h"

namespace trainer {

// The model as it will be trained, and how it will be saved.
struct Prepared {
  std::unique_ptr<Model> model;
  Artefacts artefacts;
};

// With the tokens that the configuration adds. A continued adapter may bring one of its own.
std::unique_ptr<Tokenizer> load_run_tokenizer(const Config& config);

// Throws FormatError and ConfigError: files that do not fit, keys that this model has no use for.
Prepared prepare_model(const Config& config, const Tokenizer& tokenizer, at::Device device);

}  // namespace trainer
