// A loaded model -> the model as it will be trained.
#pragma once

#include <cstdint>
#include <optional>

#include "trainer/config/config.h"
#include "trainer/formats/peft.h"
#include "trainer/models/load_model.h"
#include "trainer/models/model.h"

namespace trainer {

// Sets the dropout, resizes the vocabulary to `vocab_rows` rows if tokens were added, and adds the adapter.
// Returns the adapter's settings as they are saved, or nothing in full fine-tuning. Works for a model on meta
// too (models/load_model.h). Throws ConfigError when the configuration asks for something that this model
// does not have.
std::optional<AdapterConfig> prepare_for_training(Model& model, const Config& config, int64_t vocab_rows,
                                                  at::Device device);

// Returns how the model's weights are quantised; nothing without model.quantize. Modules that are saved with
// the adapter stay dense.
std::optional<Quantisation> quantisation_of(const Config& config);

// Returns whether the weights of blocks are divided among so many ranks (parallel.shard: all).
bool divides_weights(const Config& config, int64_t ranks);

}  // namespace trainer
