// Which rank updates which parameter (parallel.shard).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/models/model.h"
#include "trainer/optim/gradients.h"
#include "trainer/parallel/ranks.h"

namespace trainer {

// Returns the rank that has each of the weights that are divided, by name; nothing without
// parallel.shard: all, and for one rank alone.
std::map<std::string, int64_t> divided_weights(const Ranks& ranks, const Config& config, Model& model);

// Returns the rank of each parameter, that of a divided one being the rank that has it, so that all have
// about as many elements; nothing when every rank updates all, which is so for one rank alone, for
// parallel.shard: none, and by default for LoRA.
std::map<std::string, int64_t> owners_among(const Ranks& ranks, const Config& config,
                                            const std::map<std::string, int64_t>& divided,
                                            const std::vector<TrainedParameter>& parameters);

// Returns the bytes of all gradients or of all parameters, whichever are more.
int64_t bytes_exchanged(const std::vector<TrainedParameter>& parameters, StateDtype gradients);

}  // namespace trainer
