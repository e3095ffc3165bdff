// The options of the adapter on one module.
#pragma once

#include <cstdint>

namespace trainer {

struct LoraOptions {
  int64_t r = 8;
  double scale = 2.0;  // lora_alpha / r; with rsLoRA lora_alpha / sqrt(r)
  double dropout = 0.0;
  bool dora = false;  // a trained magnitude for each output
  bool bias = false;  // lora_B has a bias
};

}  // namespace trainer
