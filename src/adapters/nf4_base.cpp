#include "adapters/nf4_base.h"

#include <ATen/ATen.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "adapters/merged_model.h"
#include "base/join_some.h"
#include "models/tensor_views.h"

namespace trainer {
namespace {

// Of the values that codes stand for.
Dtype dtype_of_values(const nlohmann::json& config) {
  const std::string name = config_string(config, "torch_dtype", "bfloat16");
  if (name == "float32") return Dtype::f32;
  return name == "float16" ? Dtype::f16 : Dtype::bf16;
}

at::Tensor on_file(const TensorView& view, at::ScalarType type) {
  const auto count = static_cast<int64_t>(view.nbytes / at::elementSize(type));
  return at::from_blob(view.data, {count}, at::dtype(type));
}

// The codes stay in the file.
Nf4Tensor opened(const StoredNf4& stored) {
  Nf4Tensor tensor;
  tensor.shape = stored.shape;
  tensor.codes = on_file(stored.codes, at::kByte);
  tensor.scales = on_file(stored.scales, scalar_type(stored.scales.dtype)).clone();
  if (stored.nested_scales) tensor.nested_scales = on_file(*stored.nested_scales, at::kFloat).clone();
  tensor.offset = stored.offset;
  return tensor;
}

// The shapes of the weights that are in NF4.
std::map<std::string, std::vector<int64_t>> shapes_of(const std::filesystem::path& model,
                                                      const std::optional<Quantisation>& quantisation) {
  std::map<std::string, std::vector<int64_t>> shapes;
  model_on_meta(model, at::kFloat, /*train_all=*/false, quantisation)
      ->for_each_parameter([&](const std::string& name, Parameter& parameter) {
        if (!parameter.value.is_tensor()) shapes[name] = parameter.shape;
      });
  return shapes;
}

std::optional<StoredQuantisation> quantisation_in(const nlohmann::json& config,
                                                  const std::filesystem::path& directory) {
  try {
    return read_quantization_config(config);
  } catch (const FormatError& error) {
    throw FormatError(concat((directory / "").string(), error.what()));
  }
}

}  // namespace

std::set<std::string> nf4_weights(const std::filesystem::path& model, const Quantisation& quantisation) {
  std::set<std::string> names;
  for (const auto& [name, shape] : shapes_of(model, quantisation)) names.insert(name);
  return names;
}

Nf4Base::Nf4Base(std::filesystem::path directory, const nlohmann::json& config, ModelWeights& weights)
    : directory_(std::move(directory)), stored_in_nf4_(quantisation_in(config, directory_).has_value()) {
  if (!stored_in_nf4_) return;
  std::vector<std::string> problems;
  for (const auto& [name, shape] : shapes_of(directory_, std::nullopt)) {
    const auto stored = find_stored_nf4(weights.tensors, name, shape, problems);
    if (!stored) continue;
    for (const std::string& companion : nf4_companions(name)) weights.tensors.erase(companion);
    weights.tensors.at(name) = {dtype_of_values(config), shape, stored->codes.data, stored->codes.nbytes};
    stored_[name] = *stored;
  }
  if (!problems.empty()) {
    throw FormatError(concat(directory_.string(), ": the weights in NF4 do not fit config.json:\n  ",
                             join_some(problems, 100, "\n  ")));
  }
}

void Nf4Base::attach(MergePlan& plan, const std::optional<Quantisation>& through) const {
  for (const auto& [name, stored] : stored_) {
    MergedTensor& tensor = plan.tensors.at(name);
    const bool is_replaced = tensor.base.data != stored.codes.data;
    if (!is_replaced) tensor.nf4 = [stored = stored] { return opened(stored); };
  }
  if (stored_in_nf4_ || !through) return;
  for (const std::string& name : nf4_weights(directory_, *through)) {
    const auto found = plan.tensors.find(name);
    if (found == plan.tensors.end()) continue;
    MergedTensor base;
    base.base = found->second.base;
    base.dtype = base.base.dtype;
    found->second.nf4 = [base, name, double_quant = through->double_quant] {
      return base.to_nf4(name, double_quant);
    };
  }
}

}  // namespace trainer
