// Which weights of a model are kept in NF4, and how they are made.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trainer/formats/model_directory.h"
#include "trainer/models/load_model.h"
#include "trainer/models/model.h"
#include "trainer/models/registry.h"

#include "formats/bitsandbytes.h"

namespace trainer {

// Where a weight is to lie.
struct WeightPlace {
  at::Device device;
  bool below;  // outside of the device's memory (memory/offload.h)
};

// Where a weight is that has no values here, because it is planned or because another rank has it.
enum class Planned { on_device, below, with_other_rank };

// The weights of linear layers, but not of the head, nor of modules that are to stay dense. A model whose
// quantization_config says that it is stored in NF4 has those that are stored so.
class QuantisedWeights {
 public:
  // `weights`: of the model's files; nullptr if there are none (a plan). Throws FormatError for a
  // quantization_config that is not supported, and ConfigError if the weights are to be trained.
  QuantisedWeights(Model& model, const Architecture& architecture, const ModelWeights* weights,
                   const LoadOptions& options);

  bool any() const { return !quantised_.empty(); }
  bool has(const std::string& name) const { return quantised_.contains(name); }
  bool is_stored(const std::string& name) const { return has(name) && stored_; }

  // Compares a stored weight's tensors with the model, and remembers them; adds what does not fit to
  // `problems`.
  void check(const std::string& name, const std::vector<int64_t>& shape, std::vector<std::string>& problems);

  // Returns the weight, quantised piece by piece or as it is stored. Counts it in `report`.
  Weight load(const std::string& name, const TensorView& view, at::ScalarType dtype, const WeightPlace& place,
              LoadReport& report) const;
  // Returns the same on `meta`; a plan counts it apart if it is `below`, and not at all if another rank has
  // it.
  Weight without_values(const std::string& name, const std::vector<int64_t>& shape, at::ScalarType dtype,
                        Planned where) const;

 private:
  bool is_double_quantised(const std::string& name) const;
  Weight stored_weight(const std::string& name, at::ScalarType dtype, const WeightPlace& place) const;

  const ModelWeights* weights_;
  std::optional<StoredQuantisation> stored_;
  bool double_quant_ = true;
  std::map<std::string, std::optional<StoredNf4>> quantised_;  // by the weight's name; what check() found
};

}  // namespace trainer
