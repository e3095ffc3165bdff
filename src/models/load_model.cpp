#include "trainer/models/load_model.h"

#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <regex>
#include <utility>

#include <ATen/ATen.h>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"
#include "trainer/nn/linear.h"

#include "base/file_facts.h"
#include "base/mappings.h"
#include "base/progress.h"
#include "base/text.h"
#include "device/target_device.h"
#include "formats/model_limits.h"
#include "memory/offload.h"
#include "models/build_model.h"
#include "models/random_weights.h"
#include "models/tensor_views.h"
#include "models/weight_placement.h"

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

using WeightsInFormat = std::map<std::string, StoredWeight>;  // by name

constexpr const char* kOtherFiles =
    "Use the config.json that was saved with these weights; download damaged ones again.";
constexpr const char* kWithoutHead =
    "The model was saved without its head (by AutoModel), and config.json does not tie it to the embedding: "
    "it cannot write text. Take the model that this one was made from, or train it to score texts "
    "(objective.name classification, regression or reward).";

// Compares the model's tree with the stored tensors and reports all differences in one error; fills in the
// names of ignored tensors. Returns the weights that are stored in a format.
WeightsInFormat check_tensors(Model& model, const ModelWeights& weights, const Architecture& architecture,
                              const std::filesystem::path& directory, const WeightPlacement& placement,
                              bool gets_head, std::vector<std::string>& ignored) {
  WeightsInFormat in_format;
  std::vector<std::string> problems;
  std::map<std::string, bool> wanted;
  model.for_each_parameter([&](const std::string& name, Parameter& parameter) {
    const std::string stored = stored_name(name, model, weights);
    wanted[stored] = true;
    const auto found = weights.tensors.find(stored);
    const WeightFormat* format = placement.stored_in(name);
    if (format != nullptr && found != weights.tensors.end()) {
      for (const std::string& companion : format->companions(name)) wanted[companion] = true;
      if (auto weight =
              format->find(weights.tensors, name, parameter.shape, placement.usual_layout(), problems))
        in_format[name] = std::move(*weight);
      return;
    }
    if (found == weights.tensors.end() && gets_head && is_of_score_head(name)) return;
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
  std::vector<std::regex> patterns(architecture.superfluous.begin(), architecture.superfluous.end());
  patterns.insert(patterns.end(), architecture.superfluous_in_some_layers.begin(),
                  architecture.superfluous_in_some_layers.end());
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
    const bool lacks_head = problems.size() == 1 && problems[0].starts_with("missing: lm_head.weight");
    throw of_family(
        ErrorCode::weights_fit,
        FormatError(concat(directory.string(), ": the weights do not fit config.json (model_type ",
                           architecture.model_type, "):\n  ", join_some(problems, kShown, "\n  "), "\n",
                           lacks_head ? kWithoutHead : kOtherFiles)));
  }
  return in_format;
}

int64_t bytes_of(const ModelWeights& weights) {
  int64_t bytes = 0;
  for (const auto& [name, view] : weights.tensors) bytes += static_cast<int64_t>(view.nbytes);
  return bytes;
}

// Calls `use` with one piece of a stored tensor after another, flat, and the place of its first element. The
// file's pages are released as they are read, so that the model is in memory only once.
void in_pieces_of_file(const TensorView& view,
                       const std::function<void(int64_t first, const at::Tensor& piece)>& use) {
  const int64_t size = static_cast<int64_t>(dtype_size(view.dtype));
  const int64_t count = static_cast<int64_t>(view.nbytes) / size, step = kPieceBytes / size;
  for (int64_t first = 0; first < count; first += step) {
    const int64_t n = std::min(step, count - first);
    std::byte* data = view.data + first * size;
    use(first, at::from_blob(data, {n}, at::TensorOptions().dtype(scalar_type(view.dtype))));
    release_pages(data, n * size);
  }
}

// Brings the weights of a model's files to where they are to lie.
class WeightLoader {
 public:
  WeightLoader(const Model& model, const ModelWeights& weights, WeightsInFormat in_format,
               const LoadOptions& options, LoadReport& report)
      : model_(model),
        weights_(weights),
        in_format_(std::move(in_format)),
        options_(options),
        report_(report),
        shown_("weights", bytes_of(weights), ProgressUnit::bytes) {}

  Weight load(const WeightPlace& place) {
    const std::string stored = stored_name(place.name, model_, weights_);
    if (!weights_.tensors.contains(stored)) return new_value(place);
    const TensorView& view = weights_.tensors.at(stored);
    const auto bytes = static_cast<int64_t>(view.nbytes);
    const bool as_stored = options_.dtype == at::ScalarType::Undefined;
    const at::ScalarType type =
        place.format == nullptr && as_stored ? scalar_type(view.dtype) : model_.dtype();
    shown_.add(bytes);
    if (place.format == nullptr) report_.stored[place.name] = view.dtype;
    if (place.lies == WeightLies::with_other_rank) return weight_without_values(place, type);
    report_.bytes += bytes;
    if (place.format == nullptr) return dense(place, view, type, weights_.mapping_of(stored));
    Weight weight(place.is_stored_so ? opened(place, type) : quantised(place, view, type));
    report_.quantised++;
    report_.quantised_bytes += weight.nbytes();
    report_.format = &place.format->name();
    return weight;
  }

 private:
  at::Tensor new_value(const WeightPlace& place) const {
    report_.new_head = true;
    const at::Tensor value =
        initial_score_head(place.name, place.parameter->shape, model_.config(), options_.head->seed);
    return value.to(options_.device, model_.dtype());
  }
  at::Tensor dense(const WeightPlace& place, const TensorView& view, at::ScalarType type,
                   std::shared_ptr<const MappedFile> mapping) {
    const bool same_type = scalar_type(view.dtype) == type;
    // The format does not guarantee alignment; unaligned tensors are copied.
    const bool aligned = reinterpret_cast<uintptr_t>(view.data) % dtype_size(view.dtype) == 0;
    if (same_type && aligned && options_.device.is_cpu() && !options_.train_all)
      return mapped(place, view, std::move(mapping));
    if (!same_type) report_.converted_bytes += static_cast<int64_t>(view.nbytes);
    const auto options = at::TensorOptions().dtype(type).device(options_.device);
    at::Tensor value = empty(place, view.shape, options);
    const at::Tensor flat = value.view({-1});
    in_pieces_of_file(view, [&](int64_t first, const at::Tensor& piece) {
      flat.narrow(0, first, piece.numel()).copy_(piece);
    });
    release_offloaded(value);
    return value;
  }

  // Codes stay in the file on the CPU; what is small is copied.
  std::shared_ptr<const WeightSource> opened(const WeightPlace& place, at::ScalarType type) {
    const StoredWeight& stored = in_format_.at(place.name);
    const TensorView& codes = stored.parts.at(0);
    std::vector<at::Tensor> tensors;
    if (options_.device.is_cpu()) {
      tensors.push_back(mapped(place, codes, weights_.mapping_of(place.name)));
    } else {
      tensors.push_back(copied(place, on_file(codes)));
      release_pages(codes.data, static_cast<int64_t>(codes.nbytes));
    }
    for (size_t i = 1; i < stored.parts.size(); i++)
      tensors.push_back(copied(place, on_file(stored.parts[i]), stored.scale_type));
    return place.format->open(stored, tensors, type);
  }

  std::shared_ptr<const WeightSource> quantised(const WeightPlace& place, const TensorView& view,
                                                at::ScalarType type) const {
    const auto quantiser = place.format->quantiser(place.name, view.shape, type, place.layout.double_quant);
    // Transformers converts a weight to the type of the computation before it quantises it.
    in_pieces_of_file(view, [&](int64_t, const at::Tensor& piece) { quantiser->add(piece.to(type)); });
    std::shared_ptr<const WeightSource> made = quantiser->finish();
    if (place.lies == WeightLies::on_device && options_.device.is_cpu()) return made;
    std::vector<at::Tensor> tensors = made->tensors();
    for (at::Tensor& tensor : tensors) tensor = copied(place, tensor);
    return made->with_storage(tensors);
  }

  at::Tensor mapped(const WeightPlace& place, const TensorView& view,
                    std::shared_ptr<const MappedFile> mapping) {
    report_.mapped_bytes += static_cast<int64_t>(view.nbytes);
    return mapped_tensor(view, std::move(mapping), /*counted=*/place.lies == WeightLies::on_device);
  }
  static at::Tensor empty(const WeightPlace& place, at::IntArrayRef shape, const at::TensorOptions& options) {
    return place.lies == WeightLies::offloaded ? offloaded_zeros(shape, options) : at::empty(shape, options);
  }
  at::Tensor copied(const WeightPlace& place, const at::Tensor& tensor,
                    std::optional<Dtype> as = std::nullopt) const {
    const at::ScalarType type = as ? scalar_type(*as) : tensor.scalar_type();
    at::Tensor out = empty(place, tensor.sizes(), tensor.options().dtype(type).device(options_.device));
    out.copy_(tensor);
    release_offloaded(out);
    return out;
  }
  // A flat tensor on the file.
  static at::Tensor on_file(const TensorView& view) {
    return at::from_blob(view.data, view.shape, at::TensorOptions().dtype(scalar_type(view.dtype)));
  }

  const Model& model_;
  const ModelWeights& weights_;
  WeightsInFormat in_format_;
  const LoadOptions& options_;
  LoadReport& report_;
  Progress shown_;
};

// Moves frozen matrices into one, below each other.
void lay_in_one(const std::vector<Parameter*>& weights) {
  int64_t rows = 0, first = 0;
  for (const Parameter* weight : weights) rows += weight->shape[0];
  const at::Tensor all = at::empty({rows, weights[0]->shape[1]}, weights[0]->value.tensor().options());
  for (Parameter* weight : weights) {
    const at::Tensor part = all.narrow(0, first, weight->shape[0]);
    part.copy_(weight->value.tensor());
    weight->value = part;
    first += part.size(0);
  }
}

// On a GPU the frozen weights of a module's linear layers with inputs of one size, such as q, k and v or gate
// and up, lie below each other, so that one product takes them (nn/packed_linear_group.h).
void lay_side_by_side(Model& model, c10::Device device) {
  if (!runs_on_gpu(device)) return;
  std::vector<Parameter*> row;
  std::string module_of_row;
  const auto finish = [&] {
    if (row.size() > 1) lay_in_one(row);
    row.clear();
  };
  const auto fits = [&](const Parameter& weight) {
    const Weight& value = weight.value;
    return value.is_tensor() && !value.offloaded() && !value.requires_grad() && value.device() == device;
  };
  for (Module* block : model.blocks()) {
    block->for_each_module([&](const std::string& name, Module& module) {
      auto* linear = dynamic_cast<Linear*>(&module);
      if (linear == nullptr || !fits(linear->weight)) return finish();
      const std::string parent = name.substr(0, name.rfind('.'));
      const bool follows = !row.empty() && parent == module_of_row &&
                           linear->weight.shape[1] == row.back()->shape[1] &&
                           linear->weight.value.scalar_type() == row.back()->value.scalar_type();
      if (!follows) finish();
      module_of_row = parent;
      row.push_back(&linear->weight);
    });
    finish();
  }
}

// Makes config.json that of a model with this head. Stored values for other labels are dropped.
void give_head(const std::optional<ScoreHeadSpec>& head, nlohmann::json& config, ModelWeights* weights) {
  if (!head) return;
  const auto stored = score_head_in(config);
  const bool same = stored && stored->labels == head->labels && stored->score == head->score;
  if (weights != nullptr && !same) {
    std::erase_if(weights->tensors, [](const auto& item) { return is_of_score_head(item.first); });
    std::erase_if(weights->file_of, [](const auto& item) { return is_of_score_head(item.first); });
  }
  config.update(score_head_keys(config, *head));
}

bool has_weights(const std::filesystem::path& path) {
  return has_entry(path / "model.safetensors") || has_entry(path / "model.safetensors.index.json");
}

}  // namespace

std::unique_ptr<Model> load_model(const std::filesystem::path& directory, const LoadOptions& options,
                                  LoadReport* report) {
  const auto begin = std::chrono::steady_clock::now();
  LoadReport local;
  LoadReport& seen = report != nullptr ? *report : local;
  nlohmann::json config = read_model_config(directory);
  const Architecture& architecture = architecture_of(config, directory);
  ModelWeights weights = read_model_weights(directory);
  give_head(options.head, config, &weights);
  settle_files(architecture, directory, config, weights);
  std::unique_ptr<Model> model =
      build_model(architecture, config, has_separate_head(architecture, config, weights), directory);
  model->set_dtype(options.dtype == at::ScalarType::Undefined ? at::kFloat : options.dtype);
  const WeightPlacement placement(*model, architecture, &weights, options);
  WeightLoader loader(*model, weights,
                      check_tensors(*model, weights, architecture, directory, placement,
                                    options.head.has_value(), seen.ignored),
                      options, seen);
  placement.fill([&](const WeightPlace& place) { return loader.load(place); });
  lay_side_by_side(*model, options.device);
  seen.seconds = seconds_since(begin);
  return model;
}

std::unique_ptr<Model> model_on_meta(const std::filesystem::path& path, at::ScalarType dtype, bool train_all,
                                     const std::optional<Quantisation>& quantise, bool offload_weights,
                                     int64_t ranks, const std::optional<ScoreHeadSpec>& head) {
  nlohmann::json config = read_model_config(path);
  const Architecture& architecture = architecture_of(config, path);
  // If there are weights, they decide; otherwise config.json does.
  std::optional<ModelWeights> weights =
      has_weights(path) ? std::optional(read_model_weights(path)) : std::nullopt;
  give_head(head, config, weights ? &*weights : nullptr);
  if (weights) settle_files(architecture, path, config, *weights);
  const bool separate_head = weights ? has_separate_head(architecture, config, *weights)
                                     : !config_bool(config, "tie_word_embeddings", true);
  std::unique_ptr<Model> model = build_model(architecture, config, separate_head, path);
  model->set_dtype(dtype);
  LoadOptions options{at::kMeta, dtype, train_all, quantise, offload_weights};
  options.ranks = ranks;
  const WeightPlacement placement(*model, architecture, weights ? &*weights : nullptr, options);
  placement.fill([&](const WeightPlace& place) { return weight_without_values(place, dtype); });
  lay_side_by_side(*model, at::kMeta);
  return model;
}

std::string LoadReport::line() const {
  std::string text =
      concat("weights: ", bytes_string(bytes), " loaded in ", std::round(seconds * 100) / 100, " s");
  if (quantised > 0)
    text += concat("; ", quantised, " matrices kept in ", format->title, ", ", bytes_string(quantised_bytes));
  return text;
}

std::string LoadReport::details() const {
  std::vector<std::string> parts;
  if (mapped_bytes > 0) parts.push_back(concat(bytes_string(mapped_bytes), " mapped from the file"));
  if (mapped_bytes < bytes)
    parts.push_back(concat(bytes_string(bytes - mapped_bytes), " read straight to its place"));
  if (converted_bytes > 0)
    parts.push_back(concat(bytes_string(converted_bytes), " of it converted on the way"));
  return concat("weights: one copy in memory (", join(parts), ")");
}

at::ScalarType automatic_dtype(at::Device device) {
  if (device.is_cuda()) return at::kBFloat16;
  return __builtin_cpu_supports("avx512bf16") ? at::kBFloat16 : at::kFloat;
}

}  // namespace trainer
