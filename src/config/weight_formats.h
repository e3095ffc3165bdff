// The ways of keeping frozen weights in fewer bits, as configurations and commands name them. What needs
// tensors of a way is its row in weights/weight_format.h.
#pragma once

#include <string>
#include <vector>

namespace trainer {

struct WeightFormatName {
  std::string name;               // the value of model.quantize, and of --quantize
  std::string title;              // in messages
  int bits = 0;                   // of a value, without scales
  std::string help;               // of model.quantize: a sentence
  std::string written_as;         // of --quantize: how the weights are written, and for which programs
  bool has_double_quant = false;  // model.double_quant
};

// All of them. The first has the fewest bits, and double quantisation (model.double_quant).
const std::vector<WeightFormatName>& weight_format_names();

// Returns the values of model.quantize, and a sentence on each format.
std::vector<std::string> weight_format_values();
std::string weight_format_help();

// The first, which is taken where less memory is asked for without a name.
const WeightFormatName& smallest_weight_format();

}  // namespace trainer
