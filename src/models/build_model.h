// Builds a model's tree of shapes from its config.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <vector>

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

// Whether the model has a head of its own. A stored head that is tied to the embedding is separate only if
// its values differ.
bool has_separate_head(const Architecture& architecture, const nlohmann::json& config,
                       const ModelWeights& weights);

// Returns the weights that memory.offload's `weights` names (weights/block_store.h); none if it is not
// `wanted`.
std::set<const Parameter*> weights_to_offload(Model& model, bool wanted);

// Returns the weights that other ranks than `rank` have, if there are several (weights/block_store.h).
std::set<const Parameter*> weights_of_others(Model& model, int64_t rank, int64_t ranks);

// Returns a plain weight of another rank: on meta, in no memory.
Weight weight_of_other_rank(const std::vector<int64_t>& shape, at::ScalarType dtype);

}  // namespace trainer
