// Prompts that are longer than what a model was made for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/models/model.h"

namespace trainer {

// Warns where a decoder's prompt has no position left for an answer (max_position_embeddings of config.json).
void warn_of_length(const Model& model, const std::vector<int32_t>& prompt, const std::string& what);

}  // namespace trainer
