#include "trainer/run/artefacts.h"

#include <ATen/ATen.h>

#include "trainer/adapters/lora.h"
#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"
#include "trainer/text/chat_template.h"
#include "trainer/text/tokenizer.h"

#include "formats/json_file.h"
#include "formats/sentence_files.h"
#include "formats/text_half.h"
#include "models/tensor_views.h"
#include "run/run_state.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

void save_adapter(const SavedWeights& weights, const Artefacts& artefacts, const fs::path& directory) {
  std::map<std::string, at::Tensor> host;
  std::map<std::string, TensorView> views;
  for (const auto& [name, tensor] : weights.tensors) {
    const at::Tensor written = tensor.detach().to(at::kCPU).to(scalar_type(weights.type_of(name)));
    views[name] = view_of(host[name] = written.contiguous());
  }
  std::map<std::string, std::string> metadata;
  if (!artefacts.trained_on.empty()) metadata[kTrainedOn] = artefacts.trained_on;
  if (weights.head) metadata[kScoreHead] = score_head_text(*weights.head, artefacts.max_length);
  write_adapter_weights(directory, views, metadata);
  write_adapter_config(directory, *artefacts.adapter);
}

void save_whole(const SavedWeights& weights, const fs::path& base, const fs::path& directory) {
  TensorSources sources;
  for (const auto& [name, tensor] : weights.tensors) sources[name] = source_of(tensor, weights.type_of(name));
  const ModelWeights of_base = has_stored_names(base) ? read_model_weights(base) : ModelWeights{};
  write_model_weights(directory, whole_again(of_base, sources));
  write_model_config(base, directory, weights.dtype, weights.config_changes);
}

}  // namespace

Dtype SavedWeights::type_of(const std::string& name) const {
  const auto other = types.find(name);
  return other != types.end() ? other->second : file_dtype(tensors.at(name).scalar_type());
}

int64_t SavedWeights::bytes() const {
  int64_t sum = 0;
  for (const auto& [name, tensor] : tensors)
    sum += tensor.numel() * static_cast<int64_t>(dtype_size(type_of(name)));
  return sum;
}

SavedWeights Artefacts::weights(Model& model) const {
  SavedWeights weights;
  weights.dtype = file_dtype(model.dtype());
  weights.config_changes = nlohmann::ordered_json::object();
  if (model.head().scores() != nullptr) weights.head = score_head_in(model.config());
  if (adapter) {
    weights.tensors = adapter_tensors(model);
    return weights;
  }
  model.for_each_parameter([&](const std::string& name, Parameter& parameter) {
    weights.tensors[name] = parameter.value.tensor().detach();
  });
  if (model.config().value("vocab_size", int64_t{0}) != model.vocab_size())
    weights.config_changes["vocab_size"] = model.vocab_size();
  if (weights.head) {
    const nlohmann::json keys = score_head_keys(model.config(), *weights.head);
    for (const auto& [key, value] : keys.items()) weights.config_changes[key] = value;
  }
  weights.config_changes["quantization_config"] = nullptr;  // of a base that is not quantised: a leftover
  return weights;
}

void Artefacts::save(const SavedWeights& weights, const fs::path& directory) const {
  make_directories(directory);
  // The weights come first: if the disk is too full for them, no incomplete model directory is left.
  if (adapter) {
    save_adapter(weights, *this, directory);
  } else {
    save_whole(weights, base, directory);
    copy_files_of_other_half(base, directory);
    if (weights.head && weights.head->score == RowScore::vector)
      write_sentence_files(directory, config_size(read_model_config(base), "d_model"), max_length);
  }
  std::vector<std::string> written = copy_companion_files(base, directory);
  const auto add = [&](const std::vector<std::string>& names) {
    written.insert(written.end(), names.begin(), names.end());
  };
  const fs::path& from = tokenizer.empty() ? base : tokenizer;
  if (from != base) {
    if (has_chat_template(from)) remove_chat_templates(directory);
    add(copy_companion_files(from, directory));
  }
  if (!added_tokens.empty()) {
    save_tokenizer(from, added_tokens, directory);
    add({"tokenizer_config.json"});
  }
  if (!taught.chat_template.empty()) add(replace_chat_template(directory, taught.chat_template));
  if (taught.generation_config) {
    write_json(directory / "generation_config.json", *taught.generation_config);
    add({"generation_config.json"});
  }
  remove_other_companions(directory, written);
}

void Artefacts::load(Model& model, const fs::path& directory) const {
  const SavedWeights places = weights(model);
  if (adapter) {
    fill_tensors(places.tensors, read_adapter_weights(directory).tensors, directory);
  } else {
    const ModelWeights stored = read_model_weights(directory);
    fill_tensors(places.tensors, stored.tensors, directory);
  }
}

}  // namespace trainer
