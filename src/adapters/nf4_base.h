// The weights of a base model that is stored in NF4, or taken as NF4 makes them.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "trainer/models/load_model.h"

#include "adapters/merge_plan.h"
#include "formats/bitsandbytes.h"

namespace trainer {

class Nf4Base {
 public:
  // If the model in `directory` is stored in NF4, puts one view with the shape and the type of the values in
  // `weights` in place of each weight's parts. Throws FormatError that lists the parts that do not fit.
  Nf4Base(std::filesystem::path directory, const nlohmann::json& config, ModelWeights& weights);

  bool is_stored() const { return stored_in_nf4_; }
  // Sets where the plan's tensors get their values from: those that are stored in NF4, and with `through`
  // those that would be quantised.
  void attach(MergePlan& plan, const std::optional<Quantisation>& through) const;

 private:
  std::filesystem::path directory_;
  bool stored_in_nf4_ = false;
  std::map<std::string, StoredNf4> stored_;
};

}  // namespace trainer
