#include "export/gguf_adapter.h"

#include <map>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "export/gguf_layout.h"
#include "export/gguf_values.h"
#include "export/new_output.h"

namespace trainer {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& source, const std::string& what) {
  throw FormatError(
      concat(source.string(), ": ", what,
             ", which no adapter in GGUF can hold; export the merged model (without --adapter)"));
}

void check(const MergedModel& model) {
  for (const auto& [name, tensor] : model.plan.tensors) {
    if (tensor.magnitude.defined()) refuse(model.source, "the adapter is a DoRA");
    if (tensor.embedding) refuse(model.source, concat("the adapter changes the embedding '", name, "'"));
    if (tensor.added.defined()) refuse(model.source, concat("the adapter changes the bias '", name, "'"));
  }
  if (model.plan.replaced > 0)
    refuse(model.source, "the adapter holds whole weights (modules_to_save, biases)");
  if (model.plan.untied) refuse(model.source, "the adapter gives the head a weight of its own");
}

// What readers divide by the rank to scale B A.
double alpha_of(const MergedTensor& tensor) { return tensor.scale * static_cast<double>(tensor.a.size(0)); }

struct AdapterTensors {
  double alpha = 0;
  std::map<std::string, at::Tensor> values;  // by their names in the file, fp32
};

AdapterTensors tensors_of(const MergedModel& model) {
  check(model);
  const GgufLayout layout = gguf_layout(model.config);
  AdapterTensors out;
  for (const auto& [name, tensor] : model.plan.tensors) {
    if (!tensor.a.defined()) continue;
    if (out.values.empty()) out.alpha = alpha_of(tensor);
    const double rest = out.alpha == 0 ? 1 : alpha_of(tensor) / out.alpha;
    const at::Tensor b = layout.is_reordered(name) ? interleaved(tensor.b, layout.head_dim) : tensor.b;
    const std::string in_file = layout.name_of(name);
    out.values[in_file + ".lora_a"] = tensor.a;
    out.values[in_file + ".lora_b"] = rest == 1 ? b : b * rest;
  }
  if (out.values.empty()) refuse(model.source, "the adapter changes nothing");
  return out;
}

}  // namespace

int64_t write_gguf_adapter(const MergedModel& model, GgufType wanted, const std::string& name,
                           const std::filesystem::path& path) {
  const at::NoGradGuard no_grad;
  const AdapterTensors tensors = tensors_of(model);
  const GgufMetadata metadata{{"general.architecture", gguf_layout(model.config).architecture},
                              {"general.type", std::string("adapter")},
                              {"general.name", name},
                              {"general.file_type", gguf_file_type(wanted)},
                              {"general.quantization_version", kGgufQuantizationVersion},
                              {"adapter.type", std::string("lora")},
                              {"adapter.lora.alpha", static_cast<float>(tensors.alpha)}};
  std::vector<GgufSource> sources;
  int64_t bytes = 0;
  for (const auto& [tensor_name, values] : tensors.values) {
    const std::vector<int64_t> shape = values.sizes().vec();
    const GgufType type = gguf_type_for(shape, wanted);
    sources.push_back(
        {tensor_name, type, shape, [&tensor_name = tensor_name, &values = values, type](std::ostream& out) {
           write_gguf_values(values, type, tensor_name, out);
         }});
    bytes += static_cast<int64_t>(gguf_bytes(type, shape, tensor_name));
  }
  require_space(path.parent_path(), bytes);
  write_gguf(path, metadata, sources);
  return bytes;
}

std::string check_gguf_adapter(const MergedModel& model, const std::filesystem::path& path) {
  const at::NoGradGuard no_grad;
  const AdapterTensors tensors = tensors_of(model);
  const GgufFile file = read_gguf(path);
  for (const auto& [name, values] : tensors.values) {
    const auto found = file.tensors.find(name);
    const bool same =
        found != file.tensors.end() && found->second.shape == values.sizes().vec() &&
        agree_in_gguf(read_gguf_values(found->second, 0, values.size(0)), values, found->second.type);
    if (!same)
      throw of_family(
          ErrorCode::export_check,
          FormatError(concat(
              path.string(), ": tensor '", name,
              "' is missing or differs from what was written when it is read again; is the disk damaged?")));
  }
  return concat("read again from disk, all ", tensors.values.size(), " tensors have the adapter's values");
}

}  // namespace trainer
