#include "weights/weight_format.h"

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"

#include "weights/fp8_weight.h"
#include "weights/nf4_weight.h"

namespace trainer {
namespace {

// Formats that tests add.
std::vector<const WeightFormat*>& added_formats() {
  static std::vector<const WeightFormat*> formats;
  return formats;
}

std::vector<std::string> known_format_names() {
  std::vector<std::string> names;
  for (const WeightFormat* format : weight_formats()) names.push_back(format->name().name);
  return names;
}

}  // namespace

std::vector<const WeightFormat*> weight_formats() {
  std::vector<const WeightFormat*> formats{&nf4_format(), &fp8_format()};
  formats.insert(formats.end(), added_formats().begin(), added_formats().end());
  return formats;
}

const WeightFormat& weight_format(const std::string& name) {
  const std::vector<const WeightFormat*> formats = weight_formats();
  const std::string& wanted = name.empty() ? smallest_weight_format().name : name;
  const auto found = std::ranges::find(formats, wanted, [](const auto* one) { return one->name().name; });
  if (found == formats.end()) {
    throw ConfigError(
        concat("'", wanted, "' is no way of keeping weights; there are ", join(known_format_names())));
  }
  return **found;
}

std::optional<StoredQuantisation> read_quantization_config(const nlohmann::json& config) {
  const auto stored = config.find("quantization_config");
  if (stored == config.end() || stored->is_null()) return std::nullopt;
  if (!stored->is_object()) throw FormatError("config.json: quantization_config: must be an object");
  for (const WeightFormat* format : weight_formats()) {
    if (auto read = format->read_config(*stored)) {
      read->format = format;
      return read;
    }
  }
  const std::string method = config_string(*stored, "quant_method", "");
  if (method.empty()) {
    throw FormatError(
        "config.json: quantization_config: has no quant_method; if the weights are not quantised, remove "
        "quantization_config, else use another conversion of the model");
  }
  throw FormatError(concat("config.json: quantization_config: quant_method ", method,
                           " is not supported; use the model without quantisation, with model.quantize: ",
                           smallest_weight_format().name, " to save memory"));
}

AddedWeightFormat::AddedWeightFormat(const WeightFormat& format) { added_formats().push_back(&format); }
AddedWeightFormat::~AddedWeightFormat() { added_formats().pop_back(); }

}  // namespace trainer
