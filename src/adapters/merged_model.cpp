#include "adapters/merged_model.h"

#include <algorithm>
#include <cstring>
#include <regex>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/peft.h"
#include "trainer/models/registry.h"

#include "adapters/merge_plan.h"
#include "adapters/nf4_base.h"
#include "formats/model_limits.h"
#include "models/build_model.h"

namespace trainer {
namespace {

bool is_t5(const MergedModel& model) { return model.embedding == "shared.weight"; }

nlohmann::ordered_json changed_keys(const MergedModel& model) {
  nlohmann::ordered_json changes = nlohmann::ordered_json::object();
  const auto table = model.plan.tensors.find(model.embedding);
  if (table != model.plan.tensors.end() && model.config.contains("vocab_size")) {
    const int64_t rows = table->second.base.shape.at(0);
    if (model.config["vocab_size"] != rows) changes["vocab_size"] = rows;
  }
  // For a T5 the key only says how the output is scaled; a T5 has a head of its own if one is stored.
  if (model.plan.untied && !is_t5(model)) changes["tie_word_embeddings"] = false;
  if (model.stored_in_nf4) changes["quantization_config"] = nullptr;
  return changes;
}

// A copy of the embedding that Transformers makes again when it loads the model.
bool has_tied_copy(const MergedModel& model) {
  const auto head = model.weights.tensors.find(kHead);
  const auto table = model.plan.tensors.find(model.embedding);
  if (model.plan.untied || head == model.weights.tensors.end() || table == model.plan.tensors.end())
    return false;
  // Families differ in their default if config.json does not have the key.
  if (!config_bool(model.config, "tie_word_embeddings", is_t5(model))) return false;
  const TensorView &a = head->second, &b = table->second.base;
  return a.nbytes == b.nbytes && std::memcmp(a.data, b.data, a.nbytes) == 0;
}

// Stored tensors that are known to belong to no module.
void drop_superfluous(MergedModel& model, const Architecture& architecture) {
  for (const std::string& pattern : architecture.superfluous) {
    const std::regex regex(pattern);
    std::erase_if(model.plan.tensors, [&](const auto& item) {
      return item.first != kHead && std::regex_match(item.first, regex);
    });
  }
  if (has_tied_copy(model)) model.plan.tensors.erase(kHead);
}

void require_floating(const MergedModel& model) {
  for (const auto& [name, tensor] : model.plan.tensors) {
    if (is_floating(tensor.base.dtype)) continue;
    throw FormatError(concat(model.base.string(), ": tensor '", name, "': is of type ",
                             dtype_name(tensor.base.dtype),
                             "; weights must be of a floating point type (F32, BF16, F16)"));
  }
}

}  // namespace

Dtype MergedModel::most_common_dtype() const {
  std::map<Dtype, size_t> bytes;
  for (const auto& [name, tensor] : plan.tensors)
    bytes[tensor.dtype] += tensor_bytes(tensor.dtype, tensor.base.shape, name);
  const auto most = std::ranges::max_element(bytes, {}, [](const auto& item) { return item.second; });
  return most == bytes.end() ? Dtype::f32 : most->first;
}

void MergedModel::set_dtype(Dtype dtype) {
  for (auto& [name, tensor] : plan.tensors) {
    if (is_floating(tensor.dtype)) tensor.dtype = dtype;
  }
}

bool MergedModel::is_exact() const {
  return plan.merged == 0 && std::ranges::all_of(plan.tensors, [](const auto& item) {
           const MergedTensor& tensor = item.second;
           if (tensor.nf4) return tensor.dtype == Dtype::f32;
           return tensor.dtype == tensor.base.dtype ||
                  (tensor.dtype == Dtype::f32 && tensor.base.dtype != Dtype::f64);
         });
}

MergedModel open_merged(const std::filesystem::path& source, const MergeOptions& options) {
  MergedModel model;
  model.source = source;
  model.base = options.base.empty() ? base_directory(source) : options.base;
  model.config = read_model_config(model.base);
  const Architecture& architecture = architecture_of(model.config, model.base);
  model.embedding = architecture.embedding;
  model.weights = read_model_weights(model.base);
  const Nf4Base quantised(model.base, model.config, model.weights);
  model.stored_in_nf4 = quantised.is_stored();
  if (model.is_adapter()) {
    model.adapter = read_adapter_weights(source);
    model.plan = plan_merge(model.weights, read_adapter_config(source), model.adapter, model.embedding,
                            config_bool(model.config, "tie_word_embeddings", true), source);
  } else {
    model.plan = plan_copy(model.weights, model.embedding);
  }
  quantised.attach(model.plan, options.through);
  drop_superfluous(model, architecture);
  require_floating(model);
  model.changes = changed_keys(model);
  for (const auto& [key, value] : model.changes.items()) model.config[key] = value;
  return model;
}

}  // namespace trainer
