// A model's tree of shapes from its config.json.
#pragma once

#include <filesystem>
#include <memory>

#include "trainer/formats/model_directory.h"
#include "trainer/models/registry.h"

namespace trainer {

// By config.json's model_type. Errors name the directory.
const Architecture& architecture_of(const nlohmann::json& config, const std::filesystem::path& directory);

// Throws FormatError with the path: what config.json asks that is not supported.
std::unique_ptr<Model> build_model(const Architecture& architecture, const nlohmann::json& config,
                                   bool separate_head, const std::filesystem::path& directory);

// A head stored beside an embedding that it is tied to is only separate when it differs.
bool has_separate_head(const Architecture& architecture, const nlohmann::json& config,
                       const ModelWeights& weights);

}  // namespace trainer
