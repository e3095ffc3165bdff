// 8-bit AdamW for models that are too small to have codes otherwise.
#pragma once

#include "trainer/optim/adamw_8bit.h"

namespace trainer::test {

// All but embeddings have codes.
inline std::unique_ptr<Optimizer> make_adamw_8bit(std::vector<TrainedParameter> parameters,
                                                  const OptimizerConfig& config, uint64_t seed) {
  return std::make_unique<AdamW8bit>(std::move(parameters), config, seed, /*fewest_coded=*/1);
}

}  // namespace trainer::test
