// A model directory, or an adapter with its base, opened as one model.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "trainer/models/load_model.h"

#include "adapters/merge_plan.h"

namespace trainer {

struct MergedModel {
  std::filesystem::path source, base;  // the same path if there is no adapter
  nlohmann::json config;               // what read_model_config() returns, with the merge's changes
  nlohmann::ordered_json changes;      // keys of config.json that the merge changes
  std::string embedding;               // the name of the embedding's tensor
  ModelWeights weights;
  SafetensorsFile adapter;
  std::optional<ScoreHeadSpec> head;        // that comes with the adapter, in place of the base's own
  const WeightFormat* stored_in = nullptr;  // the base's weights, if they are quantised; the plan has values
  MergePlan plan;  // the tensors that Transformers would save: a tied head once, nothing superfluous

  bool is_adapter() const { return source != base; }
  // The type that holds the most bytes.
  Dtype most_common_dtype() const;
  // Sets the type in which all floating-point tensors are written.
  void set_dtype(Dtype dtype);
  // Returns whether every written tensor has the stored values: nothing is merged, no type is narrower.
  bool is_exact() const;
};

struct MergeOptions {
  std::filesystem::path base = {};  // instead of the one that the adapter names, if set
  // Takes the base's weights as they are when they are quantised and dequantised again. Has no effect on a
  // base that is stored so.
  std::optional<Quantisation> through = std::nullopt;
};

// `source`: a model or adapter directory. Throws FormatError if it does not load, or if the adapter does not
// fit its base.
MergedModel open_merged(const std::filesystem::path& source, const MergeOptions& options = {});

// Returns the names of the model's linear layers, and of its output head.
std::set<std::string> linear_layers(const std::filesystem::path& model);

// Returns the names of the weights that are quantised so or, if the model is stored in a format, of those
// that are.
std::set<std::string> quantised_weights(const std::filesystem::path& model, const Quantisation& quantisation);

}  // namespace trainer
