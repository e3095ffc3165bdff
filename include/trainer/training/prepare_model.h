// A loaded model -> the model as it will be trained.
#pragma once

#include <optional>

#include "trainer/config/config.h"
#include "trainer/formats/peft.h"
#include "trainer/models/model.h"

namespace trainer {

// Sets the dropout, gives the vocabulary `vocab_rows` rows where tokens were added, puts the adapter on.
// Returns the adapter's settings as they are saved; nothing in full fine-tuning. Also of a model on meta
// (models/load_model.h). Throws ConfigError: what the configuration asks that this model has not.
std::optional<AdapterConfig> prepare_for_training(Model& model, const Config& config, int64_t vocab_rows,
                                                  at::Device device);

}  // namespace trainer
