// Which rank updates which parameter (parallel.shard).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/optim/gradients.h"
#include "trainer/parallel/ranks.h"

namespace trainer {

// Returns the rank of each parameter, so that all have about as many elements; nothing when every rank
// updates all, which is so for one rank alone, for parallel.shard: none, and by default for LoRA.
std::map<std::string, int64_t> owners_among(const Ranks& ranks, const Config& config,
                                            const std::vector<TrainedParameter>& parameters);

// Returns the bytes of all gradients or of all parameters, whichever are more.
int64_t bytes_exchanged(const std::vector<TrainedParameter>& parameters, StateDtype gradients);

}  // namespace trainer
