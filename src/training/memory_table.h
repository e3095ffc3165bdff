// Shows what uses the memory of a run that ran out of it.
#pragma once

#include <string>

#include "trainer/config/config.h"
#include "trainer/models/model.h"

namespace trainer {

// Returns a line each for weights, gradients, optimizer state, allocated memory, peak and limit; then what to
// change that no memory plan can weigh, cheapest first.
std::string memory_table(const Config& config, Model& model, int64_t optimizer_state, at::Device device);

// The same for an evaluation or a generation: allocated memory, peak and limit, then `advice`.
std::string memory_table(at::Device device, const std::string& advice);

}  // namespace trainer
