// What takes the memory of a run that did not find enough.
#pragma once

#include <string>

#include "trainer/config/config.h"
#include "trainer/models/model.h"

namespace trainer {

// Weights, gradients, optimizer state, what is allocated, the peak and the limit, a line each; then what to
// change, what costs least first.
std::string memory_table(const Config& config, Model& model, int64_t optimizer_state, at::Device device);

// The same of an evaluation or a generation: what is allocated, the peak and the limit, and `advice`.
std::string memory_table(at::Device device, const std::string& advice);

}  // namespace trainer
