#include <set>

#include <ATen/ATen.h>

#include "trainer/base/files.h"
#include "trainer/models/load_model.h"

#include "base/regular_file.h"
#include "memory/offload.h"
#include "models/build_model.h"
#include "models/quantised_weights.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

std::optional<ModelWeights> weights_of(const fs::path& path) {
  const bool stored =
      has_entry(path / "model.safetensors") || has_entry(path / "model.safetensors.index.json");
  return stored ? std::optional(read_model_weights(path)) : std::nullopt;
}

}  // namespace

std::unique_ptr<Model> model_on_meta(const fs::path& path, at::ScalarType dtype, bool train_all,
                                     const std::optional<Quantisation>& quantise, bool offload_weights,
                                     int64_t ranks) {
  const nlohmann::json config = read_model_config(path);
  const Architecture& architecture = architecture_of(config, path);
  // If there are weights, they decide; otherwise config.json does.
  const std::optional<ModelWeights> weights = weights_of(path);
  const bool separate_head = weights ? has_separate_head(architecture, config, *weights)
                                     : !config_bool(config, "tie_word_embeddings", true);
  std::unique_ptr<Model> model = build_model(architecture, config, separate_head, path);
  const QuantisedWeights quantised(*model, architecture, weights ? &*weights : nullptr,
                                   {at::kMeta, dtype, train_all, quantise});
  model->set_dtype(dtype);
  const std::set<const Parameter*> offloaded = weights_to_offload(*model, offload_weights);
  const std::set<const Parameter*> elsewhere = weights_of_others(*model, /*rank=*/0, ranks);
  const auto options = at::TensorOptions().dtype(dtype).device(at::kMeta);
  model->for_each_parameter([&](const std::string& name, Parameter& parameter) {
    const bool below = offloaded.contains(&parameter);
    const bool absent = elsewhere.contains(&parameter);
    if (quantised.has(name)) {
      const Planned where = absent ? Planned::with_other_rank : below ? Planned::below : Planned::on_device;
      parameter.value = quantised.without_values(name, parameter.shape, dtype, where);
      return;
    }
    parameter.value = absent  ? weight_of_other_rank(parameter.shape, dtype)
                      : below ? Weight(offloaded_zeros(parameter.shape, options))
                              : Weight(at::empty(parameter.shape, options));
    if (below) parameter.value.set_offloaded();
    parameter.value.set_requires_grad(train_all);
  });
  return model;
}

}  // namespace trainer
