// Writes a merged model in NF4, as Transformers and bitsandbytes store one.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "adapters/merged_model.h"

namespace trainer {

class Nf4Export {
 public:
  // Quantises the weights of linear layers, all but the head, and keeps their scales; weights that are in NF4
  // and that nothing is added to stay as they are. `model` must outlive this.
  Nf4Export(const MergedModel& model, const Quantisation& quantisation);

  // All tensors. Codes are made again when they are written, one weight at a time.
  TensorSources sources() const;
  // What config.json gets: the quantization_config.
  nlohmann::ordered_json config_changes() const;
  // Reads the written files again, and compares each value with the one that was quantised. Throws
  // FormatError. Returns a line about it.
  std::string check(const std::filesystem::path& directory) const;

 private:
  void add_parts(const std::string& name, const MergedTensor& tensor, TensorSources& sources) const;

  const MergedModel& model_;
  Quantisation quantisation_;
  std::map<std::string, Nf4Tensor> scales_;  // by the weight's name, without codes
};

}  // namespace trainer
