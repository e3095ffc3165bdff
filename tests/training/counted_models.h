// Models of the cards in configs/models, without weights, of which tests count what a step asks of a GPU.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "trainer/base/files.h"
#include "trainer/models/load_model.h"

#include "support/temporary_directory.h"

namespace trainer::test {

inline nlohmann::json model_card(const std::string& name) {
  return nlohmann::json::parse(
      read_file(std::filesystem::path(SOURCE_DIR) / "configs/models" / (name + ".json")));
}

inline int64_t layers_of(const nlohmann::json& config) {
  return config.value("num_hidden_layers", config.value("num_layers", int64_t{0}));
}

// In bf16 with so many layers; for T5: in the encoder and in the decoder.
inline std::unique_ptr<Model> counted_model(const std::string& name, int64_t layers, bool train_all,
                                            const std::optional<Quantisation>& quantise) {
  nlohmann::json json = model_card(name);
  for (const char* key : {"num_hidden_layers", "num_layers", "num_decoder_layers"}) {
    if (json.contains(key)) json[key] = layers;
  }
  json.erase("layer_types");
  const TemporaryDirectory directory;
  write_atomically(directory / "config.json", json.dump());
  return model_on_meta(directory / ".", at::kBFloat16, train_all, quantise);
}

}  // namespace trainer::test
