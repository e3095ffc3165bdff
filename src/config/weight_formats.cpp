#include "config/weight_formats.h"

#include "trainer/base/strings.h"

namespace trainer {

const std::vector<WeightFormatName>& weight_format_names() {
  static const std::vector<WeightFormatName> names{
      {"nf4", "NF4", 4, "4 bits, as bitsandbytes does",
       "write the weights of linear layers in 4 bits, for Transformers with bitsandbytes", true},
      {"fp8", "FP8", 8, "8 bits (e4m3) with a scale a row, half the memory of bf16",
       "write them in 8 bits (compressed-tensors), for vLLM"},
  };
  return names;
}

std::vector<std::string> weight_format_values() {
  std::vector<std::string> values{"none"};
  for (const WeightFormatName& format : weight_format_names()) values.push_back(format.name);
  return values;
}

std::string weight_format_help() {
  std::string help;
  for (const WeightFormatName& format : weight_format_names())
    help += concat(format.name, ": ", format.help, ". ");
  return help;
}

const WeightFormatName& smallest_weight_format() { return weight_format_names().front(); }

}  // namespace trainer
