// Warns of prompts that are longer than the model supports.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/models/model.h"

namespace trainer {

// Warns when a decoder's prompt leaves no position for an answer (max_position_embeddings of config.json).
void warn_of_length(const Model& model, const std::vector<int32_t>& prompt, const std::string& what);

}  // namespace trainer
