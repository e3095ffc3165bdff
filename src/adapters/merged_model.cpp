#include "adapters/merged_model.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <regex>

#include <ATen/ATen.h>

#include "trainer/adapters/lora.h"
#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/peft.h"
#include "trainer/models/registry.h"

#include "adapters/merge_plan.h"
#include "base/text.h"
#include "formats/model_limits.h"
#include "models/build_model.h"
#include "models/tensor_views.h"

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
  changes["quantization_config"] = nullptr;  // values are written, whatever form they come in
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
  // Without ties, T5Gemma 2's decoder has an embedding of its own.
  const bool has_own_tables =
      model.config.contains("encoder") && !config_bool(model.config, "tie_word_embeddings", true);
  for (const std::string& pattern : architecture.superfluous) {
    if (has_own_tables) break;
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

// Returns the type of the values that codes stand for.
Dtype dtype_of_values(const nlohmann::json& config) {
  const std::string name = config_string(config, "torch_dtype", "bfloat16");
  if (name == "float32") return Dtype::f32;
  return name == "float16" ? Dtype::f16 : Dtype::bf16;
}

// Codes stay in the file.
std::shared_ptr<const WeightSource> opened(const WeightFormat& format, const StoredWeight& stored) {
  std::vector<at::Tensor> tensors;
  for (const TensorView& part : stored.parts) {
    const at::Tensor on_file = at::from_blob(part.data, part.shape, at::dtype(scalar_type(part.dtype)));
    const at::ScalarType type = stored.scale_type ? scalar_type(*stored.scale_type) : on_file.scalar_type();
    tensors.push_back(tensors.empty() ? on_file : on_file.to(type, /*non_blocking=*/false, /*copy=*/true));
  }
  return format.open(stored, tensors, at::kFloat);
}

// The shapes of the weights that are quantised.
std::map<std::string, std::vector<int64_t>> quantised_shapes(const std::filesystem::path& model,
                                                             const std::optional<Quantisation>& how,
                                                             const std::optional<ScoreHeadSpec>& head = {}) {
  std::map<std::string, std::vector<int64_t>> shapes;
  model_on_meta(model, at::kFloat, /*train_all=*/false, how, /*offload_weights=*/false, /*ranks=*/1, head)
      ->for_each_parameter([&](const std::string& name, Parameter& parameter) {
        if (!parameter.value.is_tensor()) shapes[name] = parameter.shape;
      });
  return shapes;
}

std::optional<StoredQuantisation> quantisation_in(const MergedModel& model) {
  try {
    return read_quantization_config(model.config);
  } catch (const FormatError& error) {
    throw FormatError(concat((model.base / "").string(), error.what()));
  }
}

// If the base is stored in a format, puts one view with the shape and the type of the values in the place of
// each weight's parts, and returns the parts. Throws FormatError that lists those that do not fit.
std::map<std::string, StoredWeight> take_stored_weights(MergedModel& model) {
  std::map<std::string, StoredWeight> taken;
  const std::optional<StoredQuantisation> quantisation = quantisation_in(model);
  if (!quantisation) return taken;
  model.stored_in = quantisation->format;
  StoredTensors& tensors = model.weights.tensors;
  std::vector<std::string> problems;
  for (const auto& [name, shape] : quantised_shapes(model.base, std::nullopt, model.head)) {
    const auto stored = model.stored_in->find(tensors, name, shape, quantisation->layout, problems);
    if (!stored) continue;
    for (const std::string& companion : model.stored_in->companions(name)) tensors.erase(companion);
    const TensorView& codes = stored->parts.at(0);
    tensors.at(name) = {dtype_of_values(model.config), shape, codes.data, codes.nbytes};
    taken[name] = *stored;
  }
  if (!problems.empty()) {
    throw FormatError(concat(model.base.string(), ": the weights in ", model.stored_in->name().title,
                             " do not fit config.json:\n  ", join_some(problems, 100, "\n  ")));
  }
  return taken;
}

void attach_stored(MergedModel& model, const std::map<std::string, StoredWeight>& stored_weights) {
  for (const auto& [name, stored] : stored_weights) {
    MergedTensor& tensor = model.plan.tensors.at(name);
    const bool is_replaced = tensor.base.data != stored.parts.at(0).data;
    if (is_replaced) continue;
    tensor.quantised = [format = model.stored_in, stored = stored] { return opened(*format, stored); };
  }
}

// Takes the weights as they are when they are quantised and dequantised again.
void attach_quantised(MergedModel& model, const Quantisation& through) {
  const WeightFormat& format = weight_format(through.format);
  for (const auto& [name, shape] : quantised_shapes(model.base, through, model.head)) {
    const auto found = model.plan.tensors.find(name);
    if (found == model.plan.tensors.end()) continue;
    MergedTensor base;
    base.base = found->second.base;
    base.dtype = base.base.dtype;
    found->second.quantised = [base, &name = found->first, &format, double_quant = through.double_quant] {
      return base.in_format(format, name, double_quant);
    };
  }
}

}  // namespace

std::set<std::string> linear_layers(const std::filesystem::path& model) {
  std::set<std::string> names{std::string(kHead).substr(0, std::string(kHead).rfind('.'))};
  model_on_meta(model, at::kFloat, /*train_all=*/false)
      ->for_each_module([&](const std::string& name, Module& module) {
        if (dynamic_cast<Linear*>(&module) != nullptr) names.insert(name);
      });
  return names;
}

std::set<std::string> quantised_weights(const std::filesystem::path& model,
                                        const Quantisation& quantisation) {
  auto shapes = quantised_shapes(model, std::nullopt);
  if (shapes.empty()) shapes = quantised_shapes(model, quantisation);
  std::set<std::string> names;
  for (const auto& [name, shape] : shapes) names.insert(name);
  return names;
}

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
           if (tensor.quantised) return tensor.dtype == Dtype::f32;
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
  if (model.is_adapter()) model.head = score_head_of(source);
  const nlohmann::json head_keys =
      model.head ? score_head_keys(model.config, *model.head) : nlohmann::json::object();
  model.config.update(head_keys);
  settle_files(architecture, model.base, model.config, model.weights);
  const std::map<std::string, StoredWeight> stored = take_stored_weights(model);
  if (model.is_adapter()) {
    model.adapter = read_adapter_weights(source);
    model.plan = plan_merge(model.weights, read_adapter_config(source), model.adapter, model.embedding,
                            config_bool(model.config, "tie_word_embeddings", true), source);
  } else {
    model.plan = plan_copy(model.weights, model.embedding);
  }
  if (model.stored_in != nullptr) {
    attach_stored(model, stored);
  } else if (options.through) {
    attach_quantised(model, *options.through);
  }
  drop_superfluous(model, architecture);
  require_floating(model);
  model.changes = changed_keys(model);
  for (const auto& [key, value] : head_keys.items()) model.changes[key] = value;
  for (const auto& [key, value] : model.changes.items()) model.config[key] = value;
  return model;
}

}  // namespace trainer
