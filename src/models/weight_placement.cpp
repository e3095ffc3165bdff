#include "models/weight_placement.h"

#include <algorithm>
#include <optional>
#include <regex>

#include <ATen/ATen.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/nn/linear.h"

#include "memory/meta_memory.h"
#include "weights/block_store.h"

namespace trainer {
namespace {

constexpr const char* kHeadModule = "lm_head";

bool ends_in_one_of(const std::string& name, const std::vector<std::string>& ends) {
  return std::ranges::any_of(ends, [&](const std::string& end) { return name.ends_with(end); });
}

}  // namespace

WeightPlacement::WeightPlacement(Model& model, const Architecture& architecture, const ModelWeights* weights,
                                 const LoadOptions& options)
    : model_(model),
      weights_(weights),
      train_all_(options.train_all),
      not_trained_(architecture.not_trained) {
  const std::vector<Module*> blocks = model.blocks();
  if (options.offload_weights) {
    for (Module* block : blocks) {
      for (const Parameter* weight : large_weights(*block)) offloaded_.insert(weight);
    }
  }
  if (options.ranks > 1) {
    for (const auto& [weight, owner] : shard_weights(blocks, options.ranks))
      if (owner != options.rank) with_others_.insert(weight);
  }
  find_in_format(architecture, options);
}

void WeightPlacement::find_in_format(const Architecture& architecture, const LoadOptions& options) {
  const std::optional<StoredQuantisation> stored = read_quantization_config(model_.config());
  if (!stored && !options.quantise) return;
  stored_ = stored.has_value();
  format_ = stored ? stored->format : &weight_format(options.quantise->format);
  if (stored && options.quantise && options.quantise->format != format_->name().name) {
    throw ConfigError(
        concat("model.quantize: ", options.quantise->format, ": the model's weights are stored in ",
               format_->name().title,
               " (quantization_config) and stay so; leave model.quantize out, or train the model "
               "that trainer export MODEL OUT --quantize ",
               options.quantise->format, " writes"));
  }
  if (options.train_all) {
    throw ConfigError(
        concat("model.quantize: ",
               stored_ ? concat("the model's weights are stored in ", format_->name().title,
                                " (quantization_config), and ")
                       : concat("weights in ", format_->name().bits, " bits "),
               "cannot be trained; add a lora section (lora: {}), or use the model without quantisation",
               stored_ ? " (trainer export MODEL OUT writes it)" : ""));
  }
  layout_ = stored ? stored->layout : format_->layout(options.quantise->double_quant);
  std::vector<std::string> skipped = architecture.not_quantised;
  if (stored && stored->skip_modules)
    skipped.insert(skipped.end(), stored->skip_modules->begin(), stored->skip_modules->end());
  model_.for_each_module([&](const std::string& name, Module& module) {
    if (name == kHeadModule || dynamic_cast<Linear*>(&module) == nullptr) return;
    const std::string weight = name + ".weight";
    const bool dense =
        is_skipped(name, skipped) || (!stored_ && ends_in_one_of(name, options.quantise->keep_dense));
    // If there are files, they decide; otherwise config.json does.
    const bool by_files = stored_ && weights_ != nullptr;
    if (by_files ? format_->is_stored(weights_->tensors, weight) : !dense) in_format_.insert(weight);
  });
}

WeightPlace WeightPlacement::place_of(const std::string& name, const Parameter& parameter) const {
  WeightPlace place{name, &parameter};
  if (with_others_.contains(&parameter)) {
    place.lies = WeightLies::with_other_rank;
  } else if (offloaded_.contains(&parameter)) {
    place.lies = WeightLies::offloaded;
  }
  if (!has_format(name)) return place;
  place.format = format_;
  place.is_stored_so = stored_;
  const bool by_files = stored_ && weights_ != nullptr;
  place.layout = by_files ? format_->layout_of(weights_->tensors, name, parameter.shape, layout_) : layout_;
  return place;
}

void WeightPlacement::fill(const std::function<Weight(const WeightPlace& place)>& make) const {
  model_.for_each_parameter([&](const std::string& name, Parameter& parameter) {
    const WeightPlace place = place_of(name, parameter);
    parameter.value = make(place);
    if (place.lies == WeightLies::offloaded) parameter.value.set_offloaded();
    if (place.lies == WeightLies::with_other_rank) parameter.value.set_of_other_rank();
    parameter.value.set_requires_grad(train_all_ && !ends_in_one_of(name, not_trained_));
  });
}

Weight weight_without_values(const WeightPlace& place, at::ScalarType type) {
  std::optional<RecordingOffloaded> offloaded;
  std::optional<RecordingNothing> nothing;
  if (place.lies == WeightLies::offloaded) offloaded.emplace();
  if (place.lies == WeightLies::with_other_rank) nothing.emplace();
  const std::vector<int64_t>& shape = place.parameter->shape;
  if (place.format != nullptr) return Weight(place.format->empty(shape, type, place.layout, at::kMeta));
  return at::empty(shape, at::TensorOptions().dtype(type).device(at::kMeta));
}

bool is_skipped(const std::string& module, const std::vector<std::string>& entries) {
  return std::ranges::any_of(entries, [&](const std::string& entry) {
    if (module.ends_with(entry)) return true;
    try {
      return std::regex_search(module, std::regex(concat("^(?:", entry, ")(?=\\.|$)")));
    } catch (const std::regex_error&) {
      return false;  // a name, whose end was compared
    }
  });
}

}  // namespace trainer
