// The placement of a model's weights, and the format in which each is kept. Loading a model and planning it
// ask here, so that a plan cannot lay out what is not loaded so.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "trainer/formats/model_directory.h"
#include "trainer/models/load_model.h"
#include "trainer/models/model.h"
#include "trainer/models/registry.h"

#include "weights/weight_format.h"

namespace trainer {

enum class WeightLies {
  on_device,        // on the CPU also in the model's mapped file
  offloaded,        // outside of the device's memory (memory/offload.h)
  with_other_rank,  // its tensors are on meta (parallel.shard: all)
};

struct WeightPlace {
  std::string name;
  const Parameter* parameter = nullptr;  // for its shape
  WeightLies lies = WeightLies::on_device;
  const WeightFormat* format = nullptr;  // null: it is a plain tensor
  bool is_stored_so = false;             // in the files; otherwise it is quantised while it is loaded
  WeightLayout layout = {};
};

// The weights of linear layers have a format, but not the head, nor modules that are to stay dense. A model
// whose quantization_config says that it is stored in one has those that are stored so.
class WeightPlacement {
 public:
  // `weights`: of the model's files; nullptr if there are none (a plan). All must outlive this. Throws
  // FormatError for a quantization_config that is not supported, and ConfigError if the weights are to be
  // trained.
  WeightPlacement(Model& model, const Architecture& architecture, const ModelWeights* weights,
                  const LoadOptions& options);

  bool has_format(const std::string& name) const { return in_format_.contains(name); }
  // Returns the format in which the files have the weight; null: in none.
  const WeightFormat* stored_in(const std::string& name) const {
    return stored_ && has_format(name) ? format_ : nullptr;
  }
  const WeightLayout& usual_layout() const { return layout_; }  // of the weights in the format
  // Calls `make` with the place of each weight, and gives its parameter the result, marked as it lies.
  void fill(const std::function<Weight(const WeightPlace& place)>& make) const;

 private:
  WeightPlace place_of(const std::string& name, const Parameter& parameter) const;
  void find_in_format(const Architecture& architecture, const LoadOptions& options);

  Model& model_;
  const ModelWeights* weights_;
  bool train_all_;
  std::vector<std::string> not_trained_;  // ends of names
  bool stored_ = false;                   // quantization_config says so
  const WeightFormat* format_ = nullptr;
  WeightLayout layout_;
  std::set<std::string> in_format_;
  std::set<const Parameter*> offloaded_, with_others_;
};

// Returns a weight on `meta`: what is planned, or what another rank has. A plan counts it apart if it is
// offloaded, and not at all if another rank has it. `type`: of its values.
Weight weight_without_values(const WeightPlace& place, at::ScalarType type);

// Returns whether an entry of llm_int8_skip_modules matches the module's whole name, its beginning up to a
// dot (also as a regular expression), or its end.
bool is_skipped(const std::string& module, const std::vector<std::string>& entries);

}  // namespace trainer
