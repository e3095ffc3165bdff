#include "models/build_model.h"

#include <cstring>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "models/config_keys.h"
#include "weights/weight_format.h"

namespace trainer {
namespace {

bool same_bytes(const TensorView& a, const TensorView& b) {
  return a.dtype == b.dtype && a.shape == b.shape && std::memcmp(a.data, b.data, a.nbytes) == 0;
}

// Refuses what no architecture here supports. Transformers stores the head of a classifier under other names.
void refuse_other_kinds(const nlohmann::json& config) {
  read_quantization_config(config);
  if (!config.contains("architectures") || !config["architectures"].is_array()) return;
  for (const nlohmann::json& entry : config["architectures"]) {
    const std::string name = entry.is_string() ? entry.get<std::string>() : entry.dump();
    const bool generates = name.ends_with("ForCausalLM") || name.ends_with("ForConditionalGeneration");
    if (name.ends_with("EncoderModel") || (name.find("For") != std::string::npos && !generates)) {
      throw FormatError(concat("config.json: architectures: '", name,
                               "' is not supported; only models that generate text are"));
    }
  }
}

}  // namespace

const Architecture& architecture_of(const nlohmann::json& config, const std::filesystem::path& directory) {
  try {
    return find_architecture(config.at("model_type"));
  } catch (const FormatError& error) {
    throw FormatError(concat((directory / "").string(), error.what()));
  }
}

std::unique_ptr<Model> build_model(const Architecture& architecture, const nlohmann::json& config,
                                   bool separate_head, const std::filesystem::path& directory) {
  try {
    refuse_other_kinds(config);
    const bool is_file = directory.extension() == ".json";
    check_config_keys(config, (is_file ? directory : directory / "config.json").string());
    return architecture.make(config, separate_head);
  } catch (const FormatError& error) {
    throw FormatError(concat((directory / "").string(), error.what()));
  }
}

bool has_separate_head(const Architecture& architecture, const nlohmann::json& config,
                       const ModelWeights& weights) {
  const auto head = weights.tensors.find("lm_head.weight");
  if (head == weights.tensors.end()) return false;
  const auto shared = weights.tensors.find(architecture.embedding);
  const bool tied = architecture.ties_always || config_bool(config, "tie_word_embeddings", true);
  return !(tied && shared != weights.tensors.end() && same_bytes(head->second, shared->second));
}

}  // namespace trainer
