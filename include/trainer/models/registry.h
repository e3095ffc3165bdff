// The supported architectures, by the model_type of config.json.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/models/model.h"

namespace trainer {

struct Architecture {
  std::string model_type;
  // Builds the tree of shapes. `separate_head`: the head has a weight of its own (has_separate_head()).
  std::function<std::unique_ptr<Model>(const nlohmann::json& config, bool separate_head)> make;
  // Regular expressions for stored tensors that no module needs and that may be ignored.
  std::vector<std::string> superfluous;
  // The embedding that the head is tied to if lm_head.weight is missing.
  std::string embedding;
  // Ends of the names of linear layers that are not quantised, as in Transformers (_keep_in_fp32_modules).
  std::vector<std::string> not_quantised = {};
  // A stored lm_head.weight that equals the embedding is tied to it even if tie_word_embeddings is false.
  bool ties_always = false;
  // What tie_word_embeddings is if config.json does not have it.
  bool ties_by_default = false;
  // Ends of the names of weights that are never trained: Transformers' buffers.
  std::vector<std::string> not_trained = {};
  // The same as `superfluous`, of tensors that other layers need; results keep them.
  std::vector<std::string> superfluous_in_some_layers = {};
};

// All of them, also those of text halves that are no models of their own.
const std::vector<Architecture>& architectures();

// Returns the architecture of what read_model_config() returns. Throws FormatError with a list of the
// supported ones if its model_type is unknown.
const Architecture& find_architecture(const nlohmann::json& config);

}  // namespace trainer
