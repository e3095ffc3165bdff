// Writes a merged model with the weights of its linear layers quantised, as Transformers stores one.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "adapters/merged_model.h"

namespace trainer {

class QuantisedExport {
 public:
  // Quantises the weights of linear layers, all but the head, and keeps their scales; weights that are in the
  // format and that nothing is added to stay as they are. `model` must outlive this.
  QuantisedExport(const MergedModel& model, const Quantisation& quantisation);

  // All tensors. Codes are made again when they are written, one weight at a time.
  TensorSources sources() const;
  // Returns the change of config.json: quantization_config.
  nlohmann::ordered_json config_changes() const;
  // Reads the written files again, and compares each value with the one that was quantised. Throws
  // FormatError. Returns a line about it.
  std::string check(const std::filesystem::path& directory) const;

 private:
  std::vector<WrittenPart> parts_of(const std::string& name) const;
  void add_parts(const std::string& name, TensorSources& sources) const;

  const MergedModel& model_;
  Quantisation quantisation_;
  const WeightFormat& format_;
  std::map<std::string, std::vector<WrittenPart>> parts_;  // by the weight's name, without codes
};

}  // namespace trainer
