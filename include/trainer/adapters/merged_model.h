// A model directory, or an adapter and its base, as the one model that they are.
#pragma once

#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "trainer/adapters/merge_plan.h"

namespace trainer {

struct MergedModel {
  std::filesystem::path source, base;  // the same where there is no adapter
  nlohmann::json config;               // as read_model_config() gives it, with the merge's changes
  nlohmann::ordered_json changes;      // keys of config.json that the merge changes
  std::string embedding;               // the name of its tensor
  ModelWeights weights;
  SafetensorsFile adapter;
  MergePlan plan;  // its tensors, as Transformers saves them: a tied head once, nothing superfluous

  bool is_adapter() const { return source != base; }
  // The type of most bytes.
  Dtype most_common_dtype() const;
  // Gives all floating-point tensors this type.
  void set_dtype(Dtype dtype);
  // Whether each tensor is the stored one, exactly: none is merged, none of a narrower type.
  bool is_exact() const;
};

// `source`: a model or adapter directory. Throws FormatError for one that does not load or does not fit its
// base.
MergedModel open_merged(const std::filesystem::path& source);

}  // namespace trainer
