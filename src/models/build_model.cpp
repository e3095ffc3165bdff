#include "models/build_model.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/models/score_head.h"

#include "base/foreign_errors.h"
#include "base/warn_once.h"
#include "formats/model_limits.h"
#include "models/config_keys.h"
#include "weights/weight_format.h"

namespace trainer {
namespace {

bool same_bytes(const TensorView& a, const TensorView& b) {
  return a.dtype == b.dtype && a.shape == b.shape && std::memcmp(a.data, b.data, a.nbytes) == 0;
}

// Refuses what no architecture here supports.
void refuse_other_kinds(const nlohmann::json& config) {
  read_quantization_config(config);
  if (!config.contains("architectures") || !config["architectures"].is_array()) return;
  for (const nlohmann::json& entry : config["architectures"]) {
    const std::string name = entry.is_string() ? entry.get<std::string>() : entry.dump();
    const bool known = name.ends_with("ForCausalLM") || name.ends_with("ForConditionalGeneration") ||
                       name.ends_with("ForSequenceClassification") || name.ends_with("T5EncoderModel") ||
                       name.ends_with("T5ForTokenClassification");
    if ((name.ends_with("EncoderModel") || name.find("For") != std::string::npos) && !known) {
      throw FormatError(concat("config.json: architectures: '", name,
                               "' is not supported; only models that generate text or classify it are"));
    }
  }
}

bool is_plain(const ModelWeights& weights) {
  return std::ranges::all_of(weights.tensors,
                             [](const auto& item) { return is_floating(item.second.dtype); });
}

// Models are saved so after their weights were dequantised, or an adapter was merged.
void drop_leftover(const std::filesystem::path& directory, nlohmann::json& config,
                   const ModelWeights& weights) {
  const auto stored = config.find("quantization_config");
  if (stored == config.end() || !stored->is_object() || !is_plain(weights)) return;
  const auto method = stored->find("quant_method");
  warn_once(concat(
      (directory / "config.json").string(), ": quantization_config",
      method != stored->end() && method->is_string() ? concat(" (", method->get<std::string>(), ")") : "",
      " is a leftover: none of the weights is quantised; it is not used, and results do not have "
      "it"));
  config.erase("quantization_config");
}

constexpr const char* kHeadName = "lm_head.weight";

// The names of the embedding that is tied to the head, as Transformers saves it.
std::vector<std::string> names_of_embedding(const Architecture& architecture) {
  if (architecture.embedding != "shared.weight") return {architecture.embedding};
  return {architecture.embedding, "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"};
}

const TensorView* stored_embedding(const Architecture& architecture, const ModelWeights& weights) {
  for (const std::string& name : names_of_embedding(architecture)) {
    const auto found = weights.tensors.find(name);
    if (found != weights.tensors.end()) return &found->second;
  }
  return nullptr;
}

// safetensors' save_model() keeps only the first name of a tied tensor.
void name_tied_embedding(const Architecture& architecture, const nlohmann::json& config,
                         ModelWeights& weights) {
  if (!config_bool(config, "tie_word_embeddings", architecture.ties_by_default)) return;
  if (stored_embedding(architecture, weights) != nullptr) return;
  auto head = weights.tensors.extract(kHeadName);
  if (head.empty()) return;
  head.key() = architecture.embedding;
  weights.tensors.insert(std::move(head));
  auto file = weights.file_of.extract(kHeadName);
  file.key() = architecture.embedding;
  weights.file_of.insert(std::move(file));
}

// Gives the tensors of a model that writes text the names that they have beside a head that scores texts,
// and drops its own head.
void name_for_scores(const Architecture& architecture, const ScoreHeadSpec& head, ModelWeights& weights) {
  const auto erase = [&](const std::string& name) {
    weights.tensors.erase(name);
    weights.file_of.erase(name);
  };
  erase(kHeadName);
  if (architecture.embedding != "shared.weight") return;
  constexpr std::string_view kPrefix = "transformer.";
  const bool bare = head.encoder_only && head.score != RowScore::tags;  // ...EncoderModel
  const auto rename = [&](auto& by_name) {
    std::remove_reference_t<decltype(by_name)> renamed;
    for (auto& [name, value] : by_name) {
      const std::string plain = name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
      if (head.encoder_only && plain.starts_with("decoder.")) continue;
      renamed[is_of_score_head(plain) || bare ? plain : concat(kPrefix, plain)] = std::move(value);
    }
    by_name = std::move(renamed);
  };
  rename(weights.tensors);
  rename(weights.file_of);
}

}  // namespace

void settle_files(const Architecture& architecture, const std::filesystem::path& directory,
                  nlohmann::json& config, ModelWeights& weights) {
  if (const auto head = score_head_in(config)) name_for_scores(architecture, *head, weights);
  drop_leftover(directory, config, weights);
  name_tied_embedding(architecture, config, weights);
}

const Architecture& architecture_of(const nlohmann::json& config, const std::filesystem::path& directory) {
  try {
    return find_architecture(config);
  } catch (const FormatError& error) {
    throw FormatError(concat((directory / "").string(), error.what()));
  }
}

std::unique_ptr<Model> build_model(const Architecture& architecture, const nlohmann::json& config,
                                   bool separate_head, const std::filesystem::path& directory) {
  const bool is_file = directory.extension() == ".json";
  const std::string where = (is_file ? directory : directory / "config.json").string();
  try {
    refuse_other_kinds(config);
    check_config_keys(config, where);
    return in_our_words(where, "copy or download it again",
                        [&] { return architecture.make(config, separate_head); });
  } catch (const FormatError& error) {
    throw FormatError(concat((directory / "").string(), error.what()));
  }
}

bool has_separate_head(const Architecture& architecture, const nlohmann::json& config,
                       const ModelWeights& weights) {
  const auto head = weights.tensors.find(kHeadName);
  if (head == weights.tensors.end()) return false;
  const TensorView* embedding = stored_embedding(architecture, weights);
  const bool tied = architecture.ties_always || config_bool(config, "tie_word_embeddings", true);
  return !(tied && embedding != nullptr && same_bytes(head->second, *embedding));
}

}  // namespace trainer
