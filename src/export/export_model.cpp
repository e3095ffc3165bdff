#include "trainer/export/export_model.h"

#include <algorithm>
#include <cmath>
#include <system_error>

#include <ATen/ATen.h>

#include "trainer/adapters/merged_model.h"
#include "trainer/base/error.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/formats/checkpoint.h"
#include "trainer/formats/model_directory.h"
#include "trainer/formats/peft.h"

#include "export/gguf_export.h"
#include "export/new_output.h"
#include "export/streamed_logits.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

constexpr const char* kAdapterFile = "adapter_model.safetensors";

// The model, the adapter, or the newest checkpoint in a run's directory.
fs::path find_directory(const fs::path& from) {
  require_model_directory(from);
  if (is_adapter_directory(from) || fs::exists(from / "config.json")) return from;
  if (const auto checkpoint = newest_complete_checkpoint(from)) {
    log::info(concat(from.string(), ": holds no finished model; using its newest checkpoint, step ",
                     checkpoint->step));
    return checkpoint->path;
  }
  throw FormatError(
      concat(from.string(),
             ": holds neither a model (config.json), nor an adapter (adapter_config.json), nor a "
             "checkpoint"));
}

fs::path find_source(const fs::path& from) {
  const fs::path source = find_directory(from);
  verify_model_files(source);
  if (const fs::path base = base_directory(source); base != source) verify_model_files(base);
  return source;
}

// The relative rounding error of the coarsest type.
double unit_of(Dtype dtype) {
  if (dtype == Dtype::bf16) return std::ldexp(1.0, -8);
  return dtype == Dtype::f16 ? std::ldexp(1.0, -11) : 0;
}

// The relative error of logits that is explained by rounding the weights once. The error of each product is
// about as large as that of a weight, and errors in a residual network add up as if they were independent.
// Sums in another order differ by less than 1e-5.
double bound_for(Dtype dtype, int64_t blocks) {
  return std::max(1e-5, 4 * unit_of(dtype) * std::sqrt(static_cast<double>(blocks) + 1));
}

std::string short_number(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", number);
  return text;
}

// Compares the written model with its source. `exact`: no value was changed.
std::string check_logits(const fs::path& source, const fs::path& written, bool exact, Dtype dtype,
                         int64_t blocks) {
  const at::Tensor expected = streamed_logits(source);
  if (!expected.isfinite().all().item<bool>()) {
    throw FormatError(concat(source.string(),
                             ": the model's own logits are not finite; its weights are damaged or diverged"));
  }
  const at::Tensor found = streamed_logits(written);
  const std::string what = concat("reloaded from disk, its logits at ", expected.size(0), " positions ");
  if (found.equal(expected)) return concat(what, "are the model's own, bit for bit");
  const double error = found.sizes() == expected.sizes()
                           ? (found.sub(expected).norm() / expected.norm()).item<double>()
                           : INFINITY;
  const double bound = exact ? 0 : bound_for(dtype, blocks);
  if (!(error <= bound)) {
    throw FormatError(concat("the export was written, but ", what, "differ from those of ", source.string(),
                             " by ", short_number(error), " (relative 2-norm; bound ", short_number(bound),
                             "), so it was removed; please report this"));
  }
  return concat(what, "differ from the model's by ", short_number(error), " (relative 2-norm; bound ",
                short_number(bound), ")");
}

int64_t blocks_of(const nlohmann::json& config) {
  if (config.contains("num_hidden_layers")) return config_size(config, "num_hidden_layers");
  const int64_t layers = config_size(config, "num_layers", 6);  // a T5
  return layers + config_size(config, "num_decoder_layers", layers);
}

Dtype coarsest(const MergedModel& model) {
  Dtype coarsest = Dtype::f32;
  for (const auto& [name, tensor] : model.plan.tensors) {
    if (unit_of(tensor.dtype) > unit_of(coarsest)) coarsest = tensor.dtype;
  }
  return coarsest;
}

ExportReport report_of(const MergedModel& model) {
  ExportReport report;
  report.merged = model.plan.merged;
  report.replaced = model.plan.replaced;
  report.untied = model.plan.untied;
  return report;
}

ExportReport export_merged(const ExportRequest& request, const fs::path& source) {
  MergedModel model = open_merged(source);
  if (request.dtype) model.set_dtype(*request.dtype);
  NewOutput output(request.out, /*file=*/false);
  ExportReport report = report_of(model);
  TensorSources sources;
  for (const auto& [name, tensor] : model.plan.tensors) {
    sources[name] = {tensor.dtype, tensor.base.shape,
                     [&name = name, &tensor = tensor](std::ostream& to) { tensor.write(to, name); }};
    report.bytes += static_cast<int64_t>(tensor_bytes(tensor.dtype, tensor.base.shape, name));
  }
  require_space(output.directory(), report.bytes);
  write_model_weights(output.directory(), sources, request.max_shard_bytes);
  write_model_config(model.base, output.directory(), model.most_common_dtype(), model.changes);
  copy_companion_files(model.base, output.directory());
  if (model.is_adapter()) copy_companion_files(source, output.directory());
  report.check =
      check_logits(source, output.directory(), model.is_exact(), coarsest(model), blocks_of(model.config));
  output.complete();
  return report;
}

// adapter_config.json unchanged, except for a base path that is relative to the adapter's directory.
void write_config(const fs::path& source, const fs::path& directory) {
  const char* name = "adapter_config.json";
  auto config = nlohmann::ordered_json::parse(read_file(source / name));
  const fs::path base = config.value("base_model_name_or_path", "");
  if (!fs::exists(base)) config["base_model_name_or_path"] = fs::canonical(source / base).string();
  write_atomically(directory / name, config.dump(2) + "\n");
}

ExportReport export_adapter(const ExportRequest& request, const fs::path& source) {
  if (!is_adapter_directory(source))
    throw ConfigError(concat(source.string(), ": is a model, not an adapter; leave out --adapter"));
  const nlohmann::json config = read_model_config(base_directory(source));
  read_adapter_config(source);  // refuses what is not supported
  read_adapter_weights(source);
  const SafetensorsFile adapter = read_safetensors(source / kAdapterFile);  // PEFT's own names
  NewOutput output(request.out, /*file=*/false);
  ExportReport report;
  std::map<std::string, MergedTensor> tensors;
  TensorSources sources;
  Dtype coarse = Dtype::f32;
  bool exact = true;
  for (const auto& [name, view] : adapter.tensors) {
    MergedTensor& tensor = tensors[name];
    tensor.base = view;
    tensor.dtype = request.dtype.value_or(view.dtype);
    exact = exact && (tensor.dtype == view.dtype || tensor.dtype == Dtype::f32);
    if (unit_of(tensor.dtype) > unit_of(coarse)) coarse = tensor.dtype;
    sources[name] = {tensor.dtype, view.shape,
                     [&name = name, &tensor](std::ostream& to) { tensor.write(to, name); }};
    report.bytes += static_cast<int64_t>(tensor_bytes(tensor.dtype, view.shape, name));
  }
  require_space(output.directory(), report.bytes);
  write_safetensors(output.directory() / kAdapterFile, sources);
  write_config(source, output.directory());
  copy_companion_files(source, output.directory());
  report.check = check_logits(source, output.directory(), exact, coarse, blocks_of(config));
  output.complete();
  return report;
}

}  // namespace

ExportReport export_model(const ExportRequest& request) {
  const fs::path source = find_source(request.source);
  return request.adapter_only ? export_adapter(request, source) : export_merged(request, source);
}

ExportReport export_gguf(const ExportRequest& request, std::optional<GgufType> type) {
  const fs::path source = find_source(request.source);
  const MergedModel model = open_merged(source);
  NewOutput output(request.out, /*file=*/true);
  ExportReport report = report_of(model);
  const std::string name = request.out.stem().string();
  report.bytes = write_gguf_model(model, type, name, output.file());
  report.check = check_gguf_model(model, output.file());
  output.complete();
  return report;
}

}  // namespace trainer
