// Builds a model's tree of shapes from its config.json.
#pragma once

#include <filesystem>
#include <memory>

#include "trainer/formats/model_directory.h"
#include "trainer/models/registry.h"

namespace trainer {

// Returns the architecture for config.json's model_type. Throws FormatError, naming the directory, if it is
// not supported.
const Architecture& architecture_of(const nlohmann::json& config, const std::filesystem::path& directory);

// Returns the model's tree of shapes, without weights. Throws FormatError with the path if config.json asks
// for something that is not supported.
std::unique_ptr<Model> build_model(const Architecture& architecture, const nlohmann::json& config,
                                   bool separate_head, const std::filesystem::path& directory);

// Brings what files of other programs say to one form: of a tied embedding that is stored under the head's
// name only, the name becomes the embedding's; a quantization_config beside weights that are not quantised is
// dropped, with a warning; with a config.json of a head that scores texts (score_head_keys()), the tensors
// get the names that they have beside it, and the other head is dropped. Call it first with what the two
// files of a model hold.
void settle_files(const Architecture& architecture, const std::filesystem::path& directory,
                  nlohmann::json& config, ModelWeights& weights);

// Returns whether the model has a head of its own. A stored head that is tied to the embedding is separate
// only if its values differ.
bool has_separate_head(const Architecture& architecture, const nlohmann::json& config,
                       const ModelWeights& weights);

}  // namespace trainer
