#include <set>

#include <ATen/ATen.h>

#include "trainer/base/files.h"
#include "trainer/base/regular_file.h"
#include "trainer/memory/offload.h"
#include "trainer/models/build_model.h"
#include "trainer/models/load_model.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

// If there are weights, they decide whether the head is separate; otherwise config.json does.
bool separate_head(const Architecture& architecture, const nlohmann::json& config, const fs::path& path) {
  if (has_entry(path / "model.safetensors") || has_entry(path / "model.safetensors.index.json")) {
    return has_separate_head(architecture, config, read_model_weights(path));
  }
  return !config_bool(config, "tie_word_embeddings", true);
}

}  // namespace

std::unique_ptr<Model> model_on_meta(const fs::path& path, at::ScalarType dtype, bool train_all,
                                     bool offload_weights) {
  const nlohmann::json config = read_model_config(path);
  const Architecture& architecture = architecture_of(config, path);
  std::unique_ptr<Model> model =
      build_model(architecture, config, separate_head(architecture, config, path), path);
  model->set_dtype(dtype);
  const std::set<const Parameter*> offloaded = weights_to_offload(*model, offload_weights);
  const auto options = at::TensorOptions().dtype(dtype).device(at::kMeta);
  model->for_each_parameter([&](const std::string&, Parameter& parameter) {
    const bool below = offloaded.contains(&parameter);
    parameter.value = below ? offloaded_zeros(parameter.shape, options) : at::empty(parameter.shape, options);
    if (below) parameter.value.set_offloaded();
    parameter.value.set_requires_grad(train_all);
  });
  return model;
}

}  // namespace trainer
