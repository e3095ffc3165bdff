#include "models/quantised_weights.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/nn/linear.h"

#include "base/release_pages.h"
#include "memory/meta_memory.h"
#include "memory/offload.h"
#include "models/tensor_views.h"
#include "weights/nf4_weight.h"

namespace trainer {
namespace {

constexpr int64_t kPieceOfFile = 16 << 20;  // of the file

constexpr const char* kHead = "lm_head";

bool ends_in_one_of(const std::string& name, const std::vector<std::string>& ends) {
  return std::ranges::any_of(ends, [&](const std::string& end) { return name.ends_with(end); });
}

bool is_stored_in_nf4(const ModelWeights& weights, const std::string& weight) {
  const auto found = weights.tensors.find(weight);
  if (found != weights.tensors.end() && found->second.dtype == Dtype::u8) return true;
  return std::ranges::any_of(nf4_companions(weight),
                             [&](const std::string& name) { return weights.tensors.contains(name); });
}

// The file's pages are released as they are read.
Nf4Tensor quantise(const std::string& name, const std::vector<int64_t>& shape, const TensorView& view,
                   at::ScalarType dtype, bool double_quant) {
  Nf4Quantiser quantiser(name, shape);
  const int64_t size = static_cast<int64_t>(dtype_size(view.dtype)), piece = kPieceOfFile / size;
  const int64_t count = static_cast<int64_t>(view.nbytes) / size;
  for (int64_t first = 0; first < count; first += piece) {
    const int64_t n = std::min(piece, count - first);
    std::byte* data = view.data + first * size;
    // Transformers converts a weight to the type of the computation before it quantises it.
    quantiser.add(at::from_blob(data, {n}, at::TensorOptions().dtype(scalar_type(view.dtype))).to(dtype));
    release_pages(data, n * size);
  }
  return quantiser.finish(double_quant);
}

// A flat tensor on the file.
at::Tensor flat_on_file(const TensorView& view) {
  const int64_t count = static_cast<int64_t>(view.nbytes / dtype_size(view.dtype));
  return at::from_blob(view.data, {count}, at::TensorOptions().dtype(scalar_type(view.dtype)));
}

// Returns a copy on the device, or below it.
at::Tensor copy_to(const WeightPlace& place, const at::Tensor& tensor) {
  const at::TensorOptions options = tensor.options().device(place.device);
  if (!place.below) return tensor.to(options, /*non_blocking=*/false, /*copy=*/true);
  at::Tensor out = offloaded_zeros(tensor.sizes(), options);
  out.copy_(tensor);
  release_offloaded(out);
  return out;
}

}  // namespace

QuantisedWeights::QuantisedWeights(Model& model, const Architecture& architecture,
                                   const ModelWeights* weights, const LoadOptions& options)
    : weights_(weights), stored_(read_quantization_config(model.config())) {
  if (!stored_ && !options.quantise) return;
  if (options.train_all) {
    throw ConfigError(
        concat("model.quantize: ",
               stored_ ? "the model's weights are stored in NF4 (quantization_config), and " : "weights in ",
               stored_ ? "" : "4 bits ",
               "cannot be trained; add a lora section (lora: {}), or use the model without "
               "quantisation"));
  }
  double_quant_ = stored_ ? stored_->double_quant : options.quantise->double_quant;
  std::vector<std::string> skipped = architecture.not_quantised;
  if (stored_ && stored_->skip_modules)
    skipped.insert(skipped.end(), stored_->skip_modules->begin(), stored_->skip_modules->end());
  model.for_each_module([&](const std::string& name, Module& module) {
    if (name == kHead || dynamic_cast<Linear*>(&module) == nullptr) return;
    const std::string weight = name + ".weight";
    const bool stored_so = stored_ && weights_ != nullptr;
    const bool dense =
        is_skipped(name, skipped) || (!stored_ && ends_in_one_of(name, options.quantise->keep_dense));
    if (stored_so ? is_stored_in_nf4(*weights_, weight) : !dense) quantised_[weight];
  });
}

bool QuantisedWeights::is_double_quantised(const std::string& name) const {
  if (!stored_ || weights_ == nullptr) return double_quant_;
  return weights_->tensors.contains(name + kNf4NestedScales);
}

void QuantisedWeights::check(const std::string& name, const std::vector<int64_t>& shape,
                             std::vector<std::string>& problems) {
  quantised_.at(name) = find_stored_nf4(weights_->tensors, name, shape, problems);
}

Weight QuantisedWeights::stored_weight(const std::string& name, at::ScalarType dtype,
                                       const WeightPlace& place) const {
  const StoredNf4& stored = quantised_.at(name).value();
  Nf4Tensor tensor;
  tensor.shape = stored.shape;
  if (place.device.is_cpu()) {  // the codes stay in the file
    const TensorView bytes{
        Dtype::u8, {static_cast<int64_t>(stored.codes.nbytes)}, stored.codes.data, stored.codes.nbytes};
    tensor.codes = mapped_tensor(bytes, weights_->mapping_of(name), /*counted=*/!place.below);
  } else {
    TensorView bytes = stored.codes;
    bytes.dtype = Dtype::u8;
    tensor.codes = copy_to(place, flat_on_file(bytes));
    release_pages(stored.codes.data, static_cast<int64_t>(stored.codes.nbytes));
  }
  tensor.scales = copy_to(place, flat_on_file(stored.scales));
  if (stored.nested_scales) tensor.nested_scales = copy_to(place, flat_on_file(*stored.nested_scales));
  tensor.offset = stored.offset;
  return Weight(std::make_shared<Nf4Weight>(std::move(tensor), dtype));
}

Weight QuantisedWeights::load(const std::string& name, const TensorView& view, at::ScalarType dtype,
                              const WeightPlace& place, LoadReport& report) const {
  Weight weight;
  report.bytes += static_cast<int64_t>(view.nbytes);
  if (stored_) {
    weight = stored_weight(name, dtype, place);
    if (place.device.is_cpu()) report.mapped_bytes += static_cast<int64_t>(view.nbytes);
  } else {
    Nf4Tensor tensor = quantise(name, view.shape, view, dtype, is_double_quantised(name));
    for (at::Tensor* part : {&tensor.codes, &tensor.scales, &tensor.nested_scales}) {
      if (part->defined() && (place.below || place.device != part->device())) *part = copy_to(place, *part);
    }
    weight = Weight(std::make_shared<Nf4Weight>(std::move(tensor), dtype));
  }
  if (place.below) weight.set_offloaded();
  report.quantised++;
  report.quantised_bytes += weight.nbytes();
  return weight;
}

Weight QuantisedWeights::without_values(const std::string& name, const std::vector<int64_t>& shape,
                                        at::ScalarType dtype, Planned where) const {
  std::optional<RecordingOffloaded> offloaded;
  std::optional<RecordingNothing> nothing;
  if (where == Planned::below) offloaded.emplace();
  if (where == Planned::with_other_rank) nothing.emplace();
  Weight weight(std::make_shared<Nf4Weight>(empty_nf4(shape, is_double_quantised(name), at::kMeta), dtype));
  if (where == Planned::below) weight.set_offloaded();
  if (where == Planned::with_other_rank) weight.set_of_other_rank();
  return weight;
}

}  // namespace trainer
