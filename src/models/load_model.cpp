#include "trainer/models/load_model.h"

#include <chrono>
#include <cstring>
#include <regex>
#include <set>

#include <ATen/ATen.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"

#include "base/join_some.h"
#include "base/progress.h"
#include "base/release_pages.h"
#include "base/seconds_since.h"
#include "formats/model_limits.h"
#include "memory/offload.h"
#include "models/build_model.h"
#include "models/quantised_weights.h"
#include "models/tensor_views.h"

namespace trainer {
namespace {

constexpr int64_t kPieceBytes = 16 << 20;

// T5 files may contain the embedding only under the names of its copies.
std::string stored_name(const std::string& name, const Model& model, const ModelWeights& weights) {
  if (weights.tensors.contains(name)) return name;
  const std::vector<std::string> tied = model.tied_names();
  if (!tied.empty() && name == tied[0]) {
    for (const std::string& alias : tied) {
      if (weights.tensors.contains(alias)) return alias;
    }
  }
  return name;
}

// Compares the model's tree with the stored tensors and reports all differences in one error; fills in the
// names of ignored tensors.
void check_tensors(Model& model, const ModelWeights& weights, const Architecture& architecture,
                   const std::filesystem::path& directory, QuantisedWeights& quantised,
                   std::vector<std::string>& ignored) {
  std::vector<std::string> problems;
  std::map<std::string, bool> wanted;
  model.for_each_parameter([&](const std::string& name, Parameter& parameter) {
    const std::string stored = stored_name(name, model, weights);
    wanted[stored] = true;
    const auto found = weights.tensors.find(stored);
    if (quantised.is_stored(name) && found != weights.tensors.end()) {
      for (const std::string& companion : nf4_companions(name)) wanted[companion] = true;
      return quantised.check(name, parameter.shape, problems);
    }
    if (found == weights.tensors.end()) {
      problems.push_back(concat("missing: ", name, " ", shape_string(parameter.shape)));
    } else if (!is_floating(found->second.dtype)) {
      problems.push_back(concat("no floating point: ", name, ": is of type ", dtype_name(found->second.dtype),
                                ", expected F32, BF16 or F16"));
    } else if (found->second.shape != parameter.shape) {
      problems.push_back(concat("misshapen: ", name, ": expected ", shape_string(parameter.shape), ", found ",
                                shape_string(found->second.shape)));
    }
  });
  const std::vector<std::regex> patterns(architecture.superfluous.begin(), architecture.superfluous.end());
  for (const auto& [name, view] : weights.tensors) {
    if (wanted.contains(name)) continue;
    const bool superfluous = std::ranges::any_of(
        patterns, [&tensor = name](const std::regex& pattern) { return std::regex_match(tensor, pattern); });
    if (superfluous) {
      ignored.push_back(name);
    } else {
      problems.push_back(concat("unexpected: ", name, " ", shape_string(view.shape)));
    }
  }
  if (!problems.empty()) {
    constexpr size_t kShown = 100;  // nobody reads a longer list
    throw of_family(
        ErrorCode::weights_fit,
        FormatError(
            concat(directory.string(), ": the weights do not fit config.json (model_type ",
                   architecture.model_type, "):\n  ", join_some(problems, kShown, "\n  "),
                   "\nUse the config.json that was saved with these weights; download damaged ones again.")));
  }
}

// Releases the file's pages as they are copied, so that the model is in memory only once.
void copy_into(const at::Tensor& out, const TensorView& view) {
  const at::Tensor flat = out.view({-1});
  const int64_t size = static_cast<int64_t>(dtype_size(view.dtype)), count = out.numel(),
                piece = kPieceBytes / size;
  for (int64_t first = 0; first < count; first += piece) {
    const int64_t n = std::min(piece, count - first);
    std::byte* data = view.data + first * size;
    flat.narrow(0, first, n)
        .copy_(at::from_blob(data, {n}, at::TensorOptions().dtype(scalar_type(view.dtype))));
    release_pages(data, n * size);
  }
  release_offloaded(out);
}

int64_t bytes_of(const ModelWeights& weights) {
  int64_t bytes = 0;
  for (const auto& [name, view] : weights.tensors) bytes += static_cast<int64_t>(view.nbytes);
  return bytes;
}

}  // namespace

std::unique_ptr<Model> load_model(const std::filesystem::path& directory, const LoadOptions& options,
                                  LoadReport* report) {
  const auto begin = std::chrono::steady_clock::now();
  LoadReport local;
  LoadReport& seen = report != nullptr ? *report : local;
  const nlohmann::json config = read_model_config(directory);
  const Architecture& architecture = architecture_of(config, directory);
  const ModelWeights weights = read_model_weights(directory);
  std::unique_ptr<Model> model =
      build_model(architecture, config, has_separate_head(architecture, config, weights), directory);
  const bool as_stored = options.dtype == at::ScalarType::Undefined;
  model->set_dtype(as_stored ? at::kFloat : options.dtype);
  QuantisedWeights quantised(*model, architecture, &weights, options);
  check_tensors(*model, weights, architecture, directory, quantised, seen.ignored);

  Progress shown("weights", bytes_of(weights), ProgressUnit::bytes);
  const std::set<const Parameter*> offloaded = weights_to_offload(*model, options.offload_weights);
  const std::set<const Parameter*> elsewhere = weights_of_others(*model, options.rank, options.ranks);
  model->for_each_parameter([&](const std::string& name, Parameter& parameter) {
    const std::string stored = stored_name(name, *model, weights);
    const TensorView& view = weights.tensors.at(stored);
    shown.add(static_cast<int64_t>(view.nbytes));
    const bool below = offloaded.contains(&parameter);
    if (quantised.has(name)) {
      if (elsewhere.contains(&parameter)) {
        parameter.value =
            quantised.without_values(name, parameter.shape, model->dtype(), Planned::with_other_rank);
        return;
      }
      parameter.value = quantised.load(name, view, model->dtype(), {options.device, below}, seen);
      return;
    }
    seen.stored[name] = view.dtype;
    const int64_t bytes = static_cast<int64_t>(view.nbytes);
    const at::ScalarType dtype = as_stored ? scalar_type(view.dtype) : options.dtype;
    if (elsewhere.contains(&parameter)) {
      parameter.value = weight_of_other_rank(parameter.shape, dtype);
      parameter.value.set_requires_grad(options.train_all);
      return;
    }
    const bool same_type = scalar_type(view.dtype) == dtype;
    seen.bytes += bytes;
    // The format does not guarantee alignment; unaligned tensors are copied.
    const bool aligned = reinterpret_cast<uintptr_t>(view.data) % dtype_size(view.dtype) == 0;
    if (same_type && aligned && options.device.is_cpu() && !options.train_all) {
      parameter.value = mapped_tensor(view, weights.mapping_of(stored), /*counted=*/!below);
      seen.mapped_bytes += bytes;
    } else {
      const auto place = at::TensorOptions().dtype(dtype).device(options.device);
      const at::Tensor value = below ? offloaded_zeros(view.shape, place) : at::empty(view.shape, place);
      copy_into(value, view);
      parameter.value = value;
      if (!same_type) seen.converted_bytes += bytes;
    }
    if (below) parameter.value.set_offloaded();
    parameter.value.set_requires_grad(options.train_all);
  });
  seen.seconds = seconds_since(begin);
  return model;
}

std::string LoadReport::line() const {
  std::string text =
      concat("weights: ", bytes_string(bytes), " in ", std::round(seconds * 100) / 100, " s, one copy (");
  if (mapped_bytes > 0) text += concat(bytes_string(mapped_bytes), " mapped from the file");
  if (mapped_bytes > 0 && mapped_bytes < bytes) text += ", ";
  if (mapped_bytes < bytes) text += concat(bytes_string(bytes - mapped_bytes), " read straight to its place");
  if (quantised > 0)
    text += concat(", ", quantised, " weights kept in NF4 with ", bytes_string(quantised_bytes));
  if (converted_bytes > 0) text += concat(", ", bytes_string(converted_bytes), " of it converted on the way");
  return text + ")";
}

at::ScalarType automatic_dtype(at::Device device) {
  if (device.is_cuda()) return at::kBFloat16;
  return __builtin_cpu_supports("avx512bf16") ? at::kBFloat16 : at::kFloat;
}

}  // namespace trainer
