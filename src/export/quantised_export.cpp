#include "export/quantised_export.h"

#include <numeric>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/mappings.h"
#include "formats/text_half.h"

namespace trainer {
namespace {

void write_bytes(const at::Tensor& tensor, std::ostream& out) {
  out.write(static_cast<const char*>(tensor.const_data_ptr()), static_cast<std::streamsize>(tensor.nbytes()));
}

}  // namespace

QuantisedExport::QuantisedExport(const MergedModel& model, const Quantisation& quantisation)
    : model_(model), quantisation_(quantisation), format_(weight_format(quantisation.format)) {
  for (const std::string& name : quantised_weights(model.base, quantisation)) {
    parts_[name] = parts_of(name);
    parts_[name].front().bytes = at::Tensor();
  }
}

std::vector<WrittenPart> QuantisedExport::parts_of(const std::string& name) const {
  const MergedTensor& tensor = model_.plan.tensors.at(name);
  const auto quantised = tensor.in_format(format_, name, quantisation_.double_quant);
  return format_.written_parts(*quantised, tensor.dtype);
}

void QuantisedExport::add_parts(const std::string& name, TensorSources& sources) const {
  const MergedTensor& tensor = model_.plan.tensors.at(name);
  const std::vector<WrittenPart>& parts = parts_.at(name);
  sources[name] = {parts.front().dtype, parts.front().shape, [this, &tensor, name](std::ostream& out) {
                     write_bytes(parts_of(name).front().bytes, out);
                     if (tensor.quantised)
                       release_pages(tensor.base.data, static_cast<int64_t>(tensor.base.nbytes));
                   }};
  for (size_t i = 1; i < parts.size(); i++) {
    sources[name + parts[i].suffix] = {parts[i].dtype, parts[i].shape, [&part = parts[i]](std::ostream& out) {
                                         write_bytes(part.bytes, out);
                                       }};
  }
}

TensorSources QuantisedExport::sources() const {
  TensorSources sources;
  for (const auto& [name, tensor] : model_.plan.tensors) {
    if (parts_.contains(name)) {
      add_parts(name, sources);
    } else {
      sources[name] = {tensor.dtype, tensor.base.shape,
                       [&name = name, &tensor = tensor](std::ostream& to) { tensor.write(to, name); }};
    }
  }
  return sources;
}

nlohmann::ordered_json QuantisedExport::config_changes() const {
  WrittenQuantisation written{quantisation_.double_quant, model_.most_common_dtype(), {}, {}};
  if (model_.stored_in == &format_)
    written.of_base = read_model_config(model_.base).at("quantization_config");
  for (const std::string& layer : linear_layers(model_.base))
    if (!parts_.contains(layer + ".weight")) written.dense.push_back(layer);
  written.other_half = modules_of_other_half(model_.weights);
  nlohmann::ordered_json changes = model_.changes;
  changes["quantization_config"] = format_.written_config(written);
  return changes;
}

std::string QuantisedExport::check(const std::filesystem::path& directory) const {
  const at::NoGradGuard no_grad;
  const MergedModel written = open_merged(directory);
  for (const auto& [name, parts] : parts_) {
    const MergedTensor& tensor = model_.plan.tensors.at(name);
    const MergedTensor& found = written.plan.tensors.at(name);
    const auto agrees = format_.compared(found.in_format(format_, name, quantisation_.double_quant));
    const int64_t columns = found.base.shape.at(1);
    int64_t first = 0;  // value
    tensor.in_rows(format_.block() / std::gcd(format_.block(), columns), [&](const at::Tensor& rows) {
      if (!agrees(first, rows)) {
        throw of_family(ErrorCode::export_check,
                        FormatError(concat(directory.string(), ": tensor '", name,
                                           "' differs from what was written when ",
                                           "it is read again; is the disk damaged?")));
      }
      first += rows.numel();
    });
    release_pages(found.base.data, static_cast<int64_t>(found.base.nbytes));
  }
  return concat("read again from disk, ", parts_.size(), " weights in ", format_.name().title,
                " have the model's values within a step");
}

}  // namespace trainer
