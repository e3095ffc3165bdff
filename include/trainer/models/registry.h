// The architectures, by the model_type of config.json.
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
  // Builds the tree of shapes. `separate_head`: a lm_head.weight is stored that differs from the embedding.
  std::function<std::unique_ptr<Model>(const nlohmann::json& config, bool separate_head)> make;
  // Regular expressions of stored tensors that no module wants and that may be ignored.
  std::vector<std::string> superfluous;
  // The embedding that an absent lm_head.weight is tied to.
  std::string embedding;
  // A stored lm_head.weight that equals the embedding is tied to it even where tie_word_embeddings is false.
  bool ties_always = false;
};

// Throws FormatError that lists the known ones.
const Architecture& find_architecture(const std::string& model_type);

}  // namespace trainer
