#include "config/weight_formats.h"

#include "trainer/base/strings.h"

namespace trainer {

const std::vector<WeightFormatName>& weight_format_names() {
  static const std::vector<WeightFormatName> names{
      {"nf4", "NF4", 4, "4 bits, as bitsandbytes does",
       "write the weights of linear layers in 4 bits, for Transformers with bitsandbytes"},
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
