// The families of models: those that are supported, and what is known of others.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace trainer {

struct Family {
  std::string model_type;  // of config.json
  std::string models;      // "Gemma 3 4B, 12B, 27B"
  // The model_types of the halves that are loaded, if only the text half of such a model is; else empty.
  std::vector<std::string> text_halves;
};

// The supported families, sorted by model_type. Text halves that are no models of their own are not among
// them.
const std::vector<Family>& families();

// Returns why a model whose model_type is not supported is refused: "Llama 4: ...". "" if nothing is known of
// it.
std::string why_not_supported(const nlohmann::json& config);

struct ModelVerdict {
  enum class Kind { known, near, unsupported } kind;
  std::string text;  // what it is, or what differs, or why not
};

// Says whether a model can be loaded. `path` is a model directory, of which only config.json is read, or a
// file like it. Throws FormatError if there is none.
ModelVerdict verdict_on(const std::filesystem::path& path);

}  // namespace trainer
