// Names of models and data sets on the hub become paths, before anything else sees them
// (docs/model-names.md).
#pragma once

#include <string>

#include "trainer/config/config.h"

#include "hub/fetch.h"

namespace trainer::cli {

// The parts that a command needs.
struct Names {
  hub::ModelParts model = hub::ModelParts::all;
  bool adapter = true;             // lora.adapter
  bool train = true, eval = true;  // the data
  bool downloads = true;           // else what is not in the cache stays a name
  // A run that goes on in output_dir takes the commits that it began with.
  bool goes_on = false;
};

// Replaces model.path, lora.adapter, data.train and data.eval where they are names. Throws ConfigError, with
// the key.
void resolve_names(Config& config, const Names& names);

// The same for a model that is named on the command line; other text is returned as it is.
std::string resolve_model_name(const std::string& text, hub::ModelParts parts = hub::ModelParts::all);

}  // namespace trainer::cli
